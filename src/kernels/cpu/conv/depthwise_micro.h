// Register kernels of the depthwise convolutions.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// Channels last: `pixels` neighbouring outputs, channels [0, channels), all with the same taps.
struct DepthwisePixels {
  const float* x;                      // at the first tap of the first pixel
  int64_t x_step, row_step, tap_step;  // to the next output pixel, the next row of taps, the next tap
  int64_t taps_h, taps_w;
  const float* w;                   // at the first tap: [tap][weight_step]
  int64_t weight_step, weight_row;  // to the next tap, to the next row of taps
  const float* bias;
  const float* residual;
  int64_t residual_step;
  float* y;
  int64_t y_step;
  int64_t pixels, channels;
  float low, high;
};
void depthwise_pixels(const DepthwisePixels&);

/// Planar: `count` vectors of output, x_step and y_step apart, from a copy of the plane that may be read a vector
/// beyond.
struct DepthwiseVectors {
  const float* x;
  int64_t x_step;
  const int32_t* offset;  // of each tap
  const float* w;         // of each tap
  int64_t taps;
  const float* residual;
  int64_t residual_step;
  float* y;
  int64_t y_step;
  int64_t count;                 // 1 to kMostVectors
  int64_t lanes, lanes_of_last;  // written
  float bias, low, high;
};
inline constexpr int64_t kMostVectors = 8;
void depthwise_vectors(const DepthwiseVectors&);

/// to[i] = from[i * step].
void pick_every(const float* from, int64_t step, int64_t n, float* to);

/// to[2 * i] = a[i], to[2 * i + 1] = b[i].
void interleave2(const float* a, const float* b, int64_t n, float* to);

int depthwise_lanes();

}  // namespace ridgeline::cpu
