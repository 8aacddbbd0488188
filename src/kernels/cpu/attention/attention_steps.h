// The vector code of attention beside its products: what happens to a row of scores, in f32.
#pragma once

#include <cstdint>

#include "ridgeline/dtype.h"

namespace ridgeline::cpu {

/// What a row of the softmax knows so far: the largest score, and the sum of exponentials around it.
struct RowState {
  float largest, sum;
};

/// scores[begin, end) become exp(score - largest so far), the others up to `count` 0; `state` goes on. Returns the
/// factor for what was accumulated before (1: nothing to do). A row that has seen nothing but -inf keeps sum 0.
float softmax_block(float* scores, int64_t begin, int64_t end, int64_t count, RowState* state);

/// y[0, n) *= factor.
void scale_row(float* y, int64_t n, float factor);

/// scores = cap * tanh(scores / cap).
void cap_scores(float* scores, int64_t n, float cap);

/// scores[i] += mask[i * col]; false of a bool mask is -inf.
void add_mask(float* scores, int64_t n, DType type, const void* mask, int64_t col);

/// f32, f16 or bf16 to f32 and back (to nearest even); both contiguous.
void to_f32(DType type, const void* from, float* to, int64_t n);
void from_f32(const float* from, DType type, void* to, int64_t n);

}  // namespace ridgeline::cpu
