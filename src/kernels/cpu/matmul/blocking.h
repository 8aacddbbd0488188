// How a product is cut: between threads, and into blocks that fit the caches.
#pragma once

#include <cstdint>

#include "kernels/cpu/matmul/gemm.h"

namespace ridgeline::cpu {

/// How the rows of A reach the tiles.
enum class SourceA {
  kInPlace,      // rows contiguous in k, with a harmless stride
  kPacked,       // copied: strided in k, or rows that would fall into few cache sets
  kGathered,     // an image: every row is copied tap by tap (im2col)
  kImage,        // an image without padding: tiles read it, one segment a kernel row
  kPaddedImage,  // an image: a block of its rows is copied once, with the padding
};

/// How B reaches the tiles.
enum class SourceB { kPanels, kInPlace, kPackedPerCall };

struct Blocking {
  Gemm problem;  // an image that is a plain matrix has become one
  SourceA a = SourceA::kInPlace;
  SourceB b = SourceB::kPanels;
  bool thin = false;  // kernels for few rows
  int64_t batches = 1;
  // The grid: each matrix of the batch is cut into rows x cols parts; `tasks` parts in all go to `threads` threads.
  int threads = 1;
  int64_t parts_rows = 1, parts_cols = 1, tasks = 1;
  // Units of rows: 1 matrix row, or with kImage and kPaddedImage the `unit_rows` pixels of a row of the output.
  int64_t units = 0, unit_rows = 1;
  int64_t block_units = 0;   // per block
  int64_t block_k = 0;       // floats of k per block (all of k with kImage and kPaddedImage)
  int64_t block_panels = 0;  // panels per block
  // Segments of a tile with kImage and kPaddedImage.
  int64_t segments = 1, segment_length = 0;
  int64_t pixel_pitch = 0, row_pitch = 0;  // of the padded copy, in floats
  // Per thread, in floats.
  int64_t a_floats = 0, b_floats = 0;
  int64_t a_pitch = 0;  // between rows of a copied block of A

  int64_t thread_floats() const { return a_floats + b_floats; }
};

Blocking make_blocking(const Gemm& problem, int threads);
/// For matvec: A in place, all of k at once.
Blocking make_thin_blocking(const Gemm& problem, int threads);

}  // namespace ridgeline::cpu
