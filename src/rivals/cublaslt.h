// cuBLASLt as a rival on the GPU: found at run time, never linked.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ir/problem.h"
#include "kernels/cuda/driver.h"

namespace ridgeline {

/// A product prepared in another library, one entry an algorithm that it proposes. `b` lies as [n,k], as ours is
/// packed.
struct CudaRival {
  std::string name;    // "cublaslt 13.1 #0"
  std::string reason;  // why there is no `run`
  std::function<void(cuda::Stream, const void* a, const void* b, void* c, void* workspace)> run;
};
inline constexpr int64_t kCudaRivalWorkspace = int64_t(64) << 20;

/// The first `most` algorithms by its own heuristics; one entry with a reason where it is not there or cannot.
std::vector<CudaRival> cublaslt_rivals(const Problem& problem, int most = 4);

}  // namespace ridgeline
