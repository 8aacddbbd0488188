// The vector code of pools: f32; channels last also bf16, and maxima of bytes.
#pragma once

#include <cstdint>

#include "ridgeline/dtype.h"

namespace ridgeline::cpu {

/// How the elements of a window become one.
enum class PoolFold : int { kMax, kSum };

/// Channels last: for each j < lanes: y[j] = fold over taps t of x[offsets[t] + j], times `factor` (sums only). NaN
/// wins a maximum; no taps give -inf, or 0.
void pool_lanes(const float* x, const int64_t* offsets, int64_t taps, float* y, int64_t lanes, PoolFold fold,
                float factor);

/// The same of bf16 (both folds), u8 or i8 (maxima); a window without taps gives the type's least.
void pool_lanes_narrow(DType dtype, const void* x, const int64_t* offsets, int64_t taps, void* y, int64_t lanes,
                       PoolFold fold, float factor);

/// Maxima of bf16, u8 or i8 in two steps: to[i] = max over rows of rows[r][i], in an order of its own (the type's
/// width), then y[i] = max over t < taps of columns[t * step + i]. At least one row, at least one tap; NaN wins.
void max_rows_narrow(DType dtype, const void* const* rows, int64_t row_count, int64_t n, void* to);
void max_columns_narrow(DType dtype, const void* columns, int64_t step, int64_t taps, int64_t n, void* y);

/// One row of outputs of one plane, stride in x and taps as the window has them: y[o] = fold over kernel_h row pointers
/// rows[r] and kernel_w taps of rows[r][o * stride + t * dilation] for o in [0, count), all of them inside the row.
void pool_row(const float* const* rows, int64_t row_count, int64_t taps, int64_t stride, int64_t dilation, float* y,
              int64_t count, PoolFold fold);

/// Fold of n contiguous numbers (sums in double over pieces).
double pool_plane(const float* x, int64_t n, PoolFold fold);
/// y[j] = fold over k < n of x[k * step + j], j < lanes: planes of channels last.
void pool_columns(const float* x, int64_t step, int64_t n, float* y, int64_t lanes, PoolFold fold);

/// y[j] = factor * (sum over k < n of x[k * step + j]), in f32, rounded once.
void mean_columns_bf16(const uint16_t* x, int64_t step, int64_t n, uint16_t* y, int64_t lanes, float factor);

}  // namespace ridgeline::cpu
