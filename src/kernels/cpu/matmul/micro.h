// The innermost loops: a tile of C held in registers. Plain pointers only: this is included by per-target code.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// One tile: C[r, j] = finish(sum over t < length of A[r * a_row + t] * B[t, j]).
struct MicroTile {
  const float* a;
  int64_t a_row;   // floats between rows of A
  int64_t length;  // of k
  const float* b;
  int64_t b_row;       // floats between rows (k) of B
  const float* ahead;  // brought into the second cache while the tile runs: `ahead_step` floats further at each k
  int64_t ahead_step;
  float* c;
  int64_t c_row;
  float alpha;       // multiplies the sum, if it is not 1
  const float* add;  // added to the sum if set: the residual, or C itself to go on with an earlier sum
  int64_t add_row;
  const float* bias;  // added if set
  float low, high;    // clamp
  bool clamp;
  int cols;  // columns of the tile that exist; of importance to the masked kernels only
};
using MicroKernel = void (*)(const MicroTile& tile);

inline constexpr int kMaxTileRows = 14;
inline constexpr int kMaxThinRows = 4;

/// The kernels of one target. A panel of B is two vectors of `lanes` floats.
struct MicroKernels {
  int lanes;
  int max_rows;                              // of a tile
  MicroKernel tile[kMaxTileRows + 1][3][2];  // [rows][vectors: 1 or 2][masked]
  MicroKernel lone[kMaxTileRows + 1];        // [rows], one whole panel that no other tile reads
  MicroKernel thin[kMaxThinRows + 1][3][2];  // [rows][vectors][masked]: for B that is read once
};

const MicroKernels& micro_kernels();

}  // namespace ridgeline::cpu
