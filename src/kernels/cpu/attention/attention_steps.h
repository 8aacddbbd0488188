// The vector code of attention beside its two products. f32.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// What a row of the softmax knows so far: the largest score, and the sum of exponentials around it.
struct RowState {
  float largest, sum;
};

/// scores[0, visible) become exp(score - largest so far), the rest up to `count` 0; `state` goes on. Returns the factor
/// for what was accumulated before (1: nothing to do). A row that has seen nothing but -inf keeps sum 0.
float softmax_block(float* scores, int64_t visible, int64_t count, RowState* state);

/// y[0, n) *= factor.
void scale_row(float* y, int64_t n, float factor);

/// scores[t] = scale * (q . k[t * k_row]) for t < count; depth numbers each.
void dot_keys(const float* q, const float* k, int64_t k_row, int64_t depth, int64_t count, float scale, float* scores);

/// y = sum over t < count of weights[t] * v[t * v_row]; depth numbers.
void sum_values(const float* weights, const float* v, int64_t v_row, int64_t depth, int64_t count, float* y);

}  // namespace ridgeline::cpu
