// The vector code of reductions. f32, sums in blocks so that their error does not grow with the length.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// What is done to each element and how elements join.
enum class ReduceFold : int { kSum, kSumAbsolute, kSumSquare, kMax, kMin, kProduct };

/// The fold's value of nothing: 0, 1 or an infinity.
double identity_of(ReduceFold fold);
double join(ReduceFold fold, double a, double b);

/// Fold of n contiguous numbers. `far`: they come from memory, what lies behind them is asked for ahead.
double reduce_row(const float* x, int64_t n, ReduceFold fold, bool far = false);

/// y[r * y_step] = fold of the n contiguous numbers at x + r * x_step, for all rows. n is at most kMostShort.
constexpr int64_t kMostShort = 8192;
void reduce_rows(const float* x, int64_t x_step, int64_t rows, int64_t n, float* y, int64_t y_step, ReduceFold fold,
                 bool far);

/// y[j] = fold(y[j], fold over k < n of x[k * step + j]) for j < lanes (contiguous): x is walked row by row.
void reduce_lanes(const float* x, int64_t step, int64_t n, float* y, int64_t lanes, ReduceFold fold, bool far = false);

}  // namespace ridgeline::cpu
