// How a product is cut: between threads, and into blocks that fit the caches.
#pragma once

#include <cstdint>

#include "kernels/cpu/matmul/gemm.h"

namespace ridgeline::cpu {

/// How the rows of A reach the tiles.
enum class SourceA {
  kInPlace,  // rows contiguous in k, with a harmless stride
  kPacked,   // copied: strided in k, or rows that would fall into few cache sets
};

/// How B reaches the tiles.
enum class SourceB { kPanels, kInPlace, kPackedPerCall };

struct Blocking {
  Gemm problem;
  SourceA a = SourceA::kInPlace;
  SourceB b = SourceB::kPanels;
  bool thin = false;  // kernels for few rows
  int64_t batches = 1;
  int64_t parts_k = 1;  // over 1: each part of k gives a partial C, summed when all are done
  // The grid: each matrix, or each part of k of it, of the batch is cut into rows x cols parts; `tasks` parts in all go
  // to `threads` threads.
  int threads = 1;
  int64_t parts_rows = 1, parts_cols = 1, tasks = 1;
  int64_t block_rows = 0, block_k = 0, block_panels = 0;  // per block
  // Per thread, in floats.
  int64_t a_floats = 0, b_floats = 0;
  int64_t a_pitch = 0;  // between rows of a copied block of A

  int64_t partial_floats = 0;  // of one partial C

  /// Whole matrices of a batch, each small beside the second cache: the next is asked for while one is multiplied.
  bool fetches_next() const {
    const Gemm& p = problem;
    const bool contiguous =
        p.a.k_stride == 1 && p.a.row_stride == p.k && (p.b.packed || p.b.stride_k == p.n || p.b.stride_n == p.k);
    return batches > 1 && tasks == batches && contiguous && p.m * p.k + p.k * p.n <= kMostFetched;
  }
  // Floats. From DRAM, one thread, us without and with: 12 x 197x197x64 830, 590; 12 x 64x64x64 B not packed 79, 60;
  // 12 x 128x64x128 B not packed 257, 214. 12 x 512x64x128 (72 Ki floats) lost: 1370, 1700.
  static constexpr int64_t kMostFetched = 48 << 10;

  int64_t thread_floats() const { return a_floats + b_floats; }
  int64_t workspace_floats() const { return threads * thread_floats() + batches * parts_k * partial_floats; }
};

Blocking make_blocking(const Gemm& problem, int threads);
/// What a block keeps in the second cache: a block of A, and B's two panels (packed ahead) or packed block, in bytes.
struct BlockBytes {
  int64_t a = 0, b = 0, room = 0;
};
BlockBytes block_bytes(const Blocking& blocking);

/// For matvec: A in place, all of k at once.
Blocking make_thin_blocking(const Gemm& problem, int threads);

}  // namespace ridgeline::cpu
