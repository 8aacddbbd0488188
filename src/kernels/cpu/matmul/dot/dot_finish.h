// What becomes of a finished block of sums. Per-target code: plain pointers alone.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// Sum of n bytes, n a multiple of 64.
int32_t sum_u8(const uint8_t* bytes, int64_t n);

/// y[r][c] = sums[r][c] + col_terms[c] - zero[c] * row_sums[r], modulo 2^32; `zero` may be null. sums rows are 32
/// apart.
void finish_i32(const int32_t* sums, const int32_t* row_sums, const int32_t* col_terms, const int32_t* zero, int rows,
                int cols, int32_t* y, int64_t ldy, bool stream = false);

/// sums = clamp(sums * alpha + bias[c] + add[r][c]) in place; bias and add may be null.
void scale_f32(float* sums, float alpha, const float* bias, const float* add, int64_t add_stride, float low, float high,
               int rows, int cols);

/// sums = float(i32 sums) * row_scale[r] * col_scale[c], in place.
void to_f32(int32_t* sums, const float* row_scale, const float* col_scale, int rows);

/// `stream`: past the caches, here and above; y and its rows are aligned to 64 bytes then.
/// Rows of f32 as bf16 (round to even) or as they are, `y_bytes` 2 or 4 an element.
void store_rows(const float* sums, int rows, int cols, void* y, int64_t ldy, int y_bytes, bool stream);

/// After the last of a thread's rows stored past the caches, before another thread is told.
void end_stores();

}  // namespace ridgeline::cpu
