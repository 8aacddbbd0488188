#pragma once

namespace ridgeline {

/// x rounded to one of 255 levels from -largest to largest; what LowBitMatMul does with act = i8. All in f32, in this
/// order, so that kernels can do the same: x * (127 / largest), rounded to even, times largest / 127. 0 if largest is.
double quantize_activation(float x, float largest);

}  // namespace ridgeline
