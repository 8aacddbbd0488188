// Register kernel of depthwise convolutions of bf16, u8 and i8, channels last.
#pragma once

#include <cstdint>

#include "ridgeline/dtype.h"

namespace ridgeline::cpu {

/// `pixels` neighbouring outputs, channels [0, channels), channels at most 32, all with the same taps. Sums go to
/// sums[pixel][32]: f32, or i32 (`integers`), which f32 multiply-adds give exactly, for all partial sums are whole and
/// below 2^24 (see kMostNarrowTaps).
struct NarrowPixels {
  DType dtype;                         // of x
  const void* x;                       // at the first tap of the first pixel
  int64_t x_step, row_step, tap_step;  // in elements: to the next output pixel, the next row of taps, the next tap
  int64_t taps_h, taps_w;
  const float* w;                   // at the first tap: [tap][weight_step], readable in whole vectors
  int64_t weight_step, weight_row;  // to the next tap, to the next row of taps
  float zero;                       // taken from each x
  bool sliding;                     // taps are neighbours, and output pixels as far apart as taps: columns are shared
  int64_t pixels, channels;
  bool integers;
  void* sums;
};
void narrow_pixels(const NarrowPixels&);

/// Of differences of bytes, whose products are below 2^16.
inline constexpr int64_t kMostNarrowTaps = 256;

}  // namespace ridgeline::cpu
