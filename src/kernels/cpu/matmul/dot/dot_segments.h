// Finished sums through a chain of segments, each a scaled sum with a residual, clamped, and perhaps quantized: what
// dequantization, bias, residual, activation and quantization come to. In registers, from the sums to the stored type.
// Per-target code: plain pointers alone.
#pragma once

#include <cstdint>
#include <limits>

#include "ridgeline/dtype.h"

namespace ridgeline::cpu {

/// One number a column, or (stride 0) one for all; null: absent. Readable to the end of the last vector.
struct DotLine {
  const float* data = nullptr;
  int64_t stride = 0;
};

/// What a segment ends with before it quantizes.
enum class DotFunction : uint8_t { kNone, kSiLU, kHardSwish, kGelu, kSigmoid, kTanh };

/// v = (v - before) * scale + bias, each rounded (`fused`: the last two as one), then plus the residual
/// (r - r_before) * r_scale + r_bias, clamped, and the function; `rounds` to bf16 after the bias, after the residual
/// and after clamp and function.
struct DotSegment {
  DotLine before, scale, bias;
  bool fused = false;
  bool has_residual = false;
  DType residual_dtype = DType::kF32;  // f32, bf16, u8, i8
  float r_before = 0, r_scale = 1, r_bias = 0;
  bool r_affine = false, r_fused = false;
  bool round_bias = false, round_residual = false, round_clamp = false;
  DotFunction function = DotFunction::kNone;
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
  /// saturate(round half to even(v / step) + zero); `step` is a divisor or, inverted, a factor.
  bool quantizes = false, divides = false;
  float step = 1, inverse = 1;  // inverse 0: step's reciprocal is no use, divide by it
  int32_t zero = 0, least = 0, most = 0;
  /// Set at the call: no value on the way to the quotient can leave 1e30 or be NaN, the reciprocal is good, and clamps
  /// before it have become bounds of the levels.
  bool tame = false;
  bool small = false;              // and the quotient is within 2^30
  bool bf16_instructions = false;  // AVX512-BF16 is there and allowed
};
inline constexpr int kMostDotSegments = 5;

/// A block of a segment's residual: at its first element; elements from row to row, columns are contiguous.
struct DotResidual {
  const void* data;
  int64_t row;
};

struct DotFinish {
  const void* sums = nullptr;         // rows 32 apart, i32 or f32
  bool integers = false;              // i32: + terms[c] - zeros[c] * row_sums[r] first, modulo 2^32
  const int32_t* terms = nullptr;     // null: none. Readable to the end of the last vector
  const int32_t* zeros = nullptr;     // null: none
  const int32_t* row_sums = nullptr;  // with `zeros`
  int rows = 0, cols = 0;
  void* y = nullptr;
  int64_t y_row = 0;            // elements
  DType y_dtype = DType::kF32;  // f32, bf16; u8, i8 after a segment that quantizes to it
  int64_t column = 0;           // the block's first, in the segments' lines
  DotResidual
      residuals[kMostDotSegments];  // of segments that have one; clearing them all took 3 % of a model in 8 bits
};

void dot_finish_segments(const DotFinish& finish, const DotSegment* segments, int count);

/// i32 sums with their terms as f32, in place.
void dot_sums_to_f32(const DotFinish& finish);
/// Rows of f32, 32 apart, as f32, bf16, u8 or i8 (whole numbers within the range).
void dot_store_rows(const DotFinish& finish);

}  // namespace ridgeline::cpu
