// The products of a few queries with keys and values that are read where they lie, once. Keys and values are f32, f16
// or bf16; everything else is f32.
#pragma once

#include <cstdint>

#include "ridgeline/dtype.h"

namespace ridgeline::cpu {

/// Rows of a cache, `row` elements apart; of `ahead` rows from `data` on the memory may be fetched.
struct CacheRows {
  DType type;
  const void* data;
  int64_t row, depth, count, ahead;
};

/// Floats between rows of `q`, `scores` and `y` below must be a multiple of 16; q is zero from depth on.
constexpr int64_t padded16(int64_t n) { return (n + 15) / 16 * 16; }

/// scores[r * score_row + t] = q[r] . k[t] for r < rows and t < k.count (up to 3 more of each row are written), and
/// y[r] += sum over t < v.count of weights[r * score_row + t] * v[t] (y is read and written to whole vectors), a few
/// keys and a few values by turns.
void attend_block(const CacheRows& k, const float* q, int64_t q_row, float* scores, const CacheRows& v,
                  const float* weights, float* y, int64_t y_row, int64_t rows, int64_t score_row);

}  // namespace ridgeline::cpu
