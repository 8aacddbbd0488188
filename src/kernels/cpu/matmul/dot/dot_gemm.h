// Products of narrow operands by the dot-product tiles: A is brought into padded rows once a call, B stands in panels,
// finished blocks go to a hook that scales, adds and stores.
#pragma once

#include <cstdint>

#include "core/thread_pool.h"
#include "kernels/cpu/matmul/dot/dot_micro.h"
#include "ridgeline/dtype.h"

namespace ridgeline::cpu {

/// Bytes of the panels of B[k, n].
int64_t dot_panel_bytes(DotType type, int64_t k, int64_t n);
/// Columns [first, last) of B (element (i, j) at b[i * stride_k + j * stride_n], of u8, i8, bf16 or f32) into the whole
/// panels; `first` is a multiple of 32. kU8S8 stores i8: u8 less 128, which its zero point has to be told. f32 is
/// rounded to bf16.
void dot_pack(DotType type, const void* b, DType dtype, int64_t stride_k, int64_t stride_n, int64_t k, int64_t n,
              uint8_t* panels, int64_t first, int64_t last);
/// Sums over k of each column of packed i8 panels.
void dot_column_sums(const uint8_t* panels, int64_t k, int64_t n, int32_t* sums);

/// A finished block: sums[rows][kDotColumns] of i32 or f32, in L1, free to be overwritten.
struct DotBlock {
  void* sums;
  const int32_t* row_sums;  // if wanted: of A's rows as multiplied (i8 plus 128), from the block's first; else null
  int64_t row, col;
  int rows, cols;
  bool stream;  // y is best stored past the caches
};

struct DotGemm {
  DotType type = DotType::kU8S8;
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  DType a_dtype = DType::kU8;  // u8; i8 (128 is added); bf16; f32 (rounded to bf16)
  int64_t a_row_stride = 0;    // in elements; those of a row are contiguous
  bool want_row_sums = false;  // kU8S8: for zero points of B
  const uint8_t* panels = nullptr;
  void (*finish)(const void* context, const DotBlock& block) = nullptr;
  const void* context = nullptr;
  /// Where `finish` stores, so that it can be fetched ahead; null: unknown.
  const void* y = nullptr;
  int64_t y_row_stride = 0;  // elements
  int y_bytes = 4;           // of one
  bool may_stream = true;    // does `finish` honour DotBlock::stream?
};

/// Should y be stored past the caches? Blocks of 32 columns reach its lines row by row, each in another page, and wait
/// for them to be read first: 1024 cubed in bf16 took 2.07 ms with them fetched ahead, 1.70 stored past the caches;
/// 2048 columns of 512 rows in f32 alone cost 2.4 ms. From the size of the second cache on where the third is a mesh
/// hardly faster than DRAM (29 and 23 GB/s), else from a quarter of the third, which the reader of y wants.
bool dot_streams(const void* y, int64_t rows, int64_t row_bytes);

int64_t dot_workspace_bytes(DotType type, int64_t m, int64_t n, int64_t k, int threads);
/// `workspace` is 64-byte aligned.
void dot_gemm(const DotGemm& problem, void* workspace, const ThreadPool& pool);

}  // namespace ridgeline::cpu
