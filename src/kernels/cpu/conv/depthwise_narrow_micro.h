// What depthwise convolutions of bf16, u8 and i8 do beside the multiply-adds of depthwise_micro.h.
#pragma once

#include <cstdint>

#include "ridgeline/dtype.h"

namespace ridgeline::cpu {

/// `pixels` of `channels` numbers, `from_step` elements apart, as f32 less `zero`: to[pixel][to_step]. What lies
/// between `channels` and `to_step` becomes 0; to_step is a multiple of 16.
void widen_pixels(DType dtype, const void* from, int64_t from_step, int64_t pixels, int64_t channels, float zero,
                  float* to, int64_t to_step);

/// n whole numbers, a multiple of 16, as i32 in place.
void whole_to_i32(float* numbers, int64_t n);

/// Of differences of bytes, whose products are below 2^16.
inline constexpr int64_t kMostNarrowTaps = 256;

}  // namespace ridgeline::cpu
