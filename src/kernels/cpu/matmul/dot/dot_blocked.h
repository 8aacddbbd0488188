// dot_gemm on AMX: a thread brings a block of A's rows into its second cache, tile by tile, and takes all panels of B
// past it, in pieces of k that stay in the first.
#pragma once

#include <cstdint>

#include "core/thread_pool.h"
#include "kernels/cpu/matmul/dot/dot_gemm.h"
#include "kernels/cpu/matmul/dot/dot_pieces.h"

namespace ridgeline::cpu {

int64_t dot_blocked_workspace(DotType type, int64_t m, int64_t k, int threads);
void dot_blocked(const DotGemm& problem, DotPieceKernel kernel, void* workspace, const ThreadPool& pool);

}  // namespace ridgeline::cpu
