// The register kernel of the channels-last convolutions: tile_pixels() output pixels by two vectors of output channels.
// Written once per target by direct_micro.cpp.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// One tile: y[t, 0..cols) = clamp(sum over outer, inner, r of a[t, outer, inner, r] w[k, 0..cols) + bias +
/// residual[t]). Pixels [0, ceil(T/2)) start at `a`, the others at `a_high` (a row of the image may end within the
/// tile).
struct DirectTile {
  const float* a;
  const float* a_high;
  int64_t a_step;  // floats from one output pixel's input to the next one's
  int64_t outer, outer_step, inner, inner_step, run;
  const float* w;  // [outer][inner][run][vectors * lanes]
  float* y;
  float* y_high;
  int64_t y_step;
  const float* bias = nullptr;      // cols floats
  const float* row_bias = nullptr;  // one for each pixel instead: when `pixels` are rows of a matrix of weights
  const float* residual;            // null: none
  const float* residual_high;
  int64_t residual_step;
  int64_t cols;  // <= vectors * lanes
  float low, high;
  /// What the next tiles will read: fetched into the second-level cache along the way, prefetch_step bytes for each k.
  const char* prefetch = nullptr;
  int64_t prefetch_step = 0;
};
using DirectMicro = void (*)(const DirectTile&);

/// The kernels of the active target.
struct DirectKernels {
  int lanes;               // floats of a vector
  int max_tile;            // pixels
  const DirectMicro* one;  // [max_tile + 1], by pixels: one vector of channels
  const DirectMicro* two;  // two vectors
};
DirectKernels direct_kernels();

}  // namespace ridgeline::cpu
