// The inner loops of quantization. Plain pointers only: this is included by per-target code.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// The smallest and largest of n numbers and of *least and *most; NaN counts as nothing.
void range_of_row(const float* x, int64_t n, float* least, float* most);

/// y = round(x / scale) + zero, half to even, within [0, 255], or [-128, 127] if `is_signed`. NaN is 0 (as a float to
/// integer conversion of it is made here). A scale of 0 with `still`: zero throughout (DynamicQuantizeLinear of zeros).
void quantize_row(const float* x, int64_t n, float scale, int32_t zero, bool is_signed, bool still, uint8_t* y);

/// y = (x - zero) * scale, x of u8 or i8.
void dequantize_row(const uint8_t* x, int64_t n, float scale, int32_t zero, bool is_signed, float* y);

}  // namespace ridgeline::cpu
