#pragma once

namespace ridgeline {

/// Below, 127 / largest is no finite f32: such rows count as zeros.
inline constexpr float kLeastLargest = 4e-37f;

/// x rounded to one of 255 levels from -largest to largest; what LowBitMatMul does with act = i8. All in f32, in this
/// order, so that kernels can do the same: x * (127 / largest), rounded to even, times largest / 127. 0 if largest is
/// below kLeastLargest; NaN if it is NaN, which stands for a block with a number that is not finite.
double quantize_activation(float x, float largest);

}  // namespace ridgeline
