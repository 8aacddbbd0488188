// C = A B in f32, row-major, from three loops to nearly the machine's peak: one file a step, one idea a file.
#pragma once

#include <cstdint>

namespace ridgeline::teach {

struct Matmul {
  const float* a;  // m x k
  const float* b;  // k x n
  float* c;        // m x n
  int64_t m, n, k;
  int64_t row;      // floats from one row of b, and of c, to the next: n, unless only some columns are to be done
  float* scratch;   // kScratchFloats for each thread, 64-byte aligned
  int threads = 1;  // for the last step
};

// The block of B that stays in the second-level cache: 256 x 512 floats are 512 KiB.
constexpr int64_t kBlockK = 256, kBlockN = 512;
constexpr int64_t kScratchFloats = kBlockK * (kBlockN + 64);

void matmul_1_naive(const Matmul& t);
void matmul_2_reordered(const Matmul& t);
void matmul_3_tiled(const Matmul& t);
void matmul_4_vectorised(const Matmul& t);
void matmul_5_registers(const Matmul& t);
void matmul_6_packed(const Matmul& t);
void matmul_7_prefetching(const Matmul& t);
void matmul_8_threaded(const Matmul& t);

/// Columns from `begin` on, one by one: what is left over where n is no multiple of a step's vectors.
void matmul_columns(const Matmul& t, int64_t begin);
/// Rows p0 to p1 of `width` columns of b from j on, one after the other.
void matmul_pack(const Matmul& t, int64_t j, int64_t width, int64_t p0, int64_t p1, float* to);
void matmul_clear(const Matmul& t);  // c = 0

}  // namespace ridgeline::teach
