// What LinearAttention's kernels share with its schema.
#pragma once

#include <cstdint>

#include "ir/problem.h"

namespace ridgeline {

struct LinearAttentionShape {
  int64_t batch = 0, length = 0, q_heads = 1, heads = 1, depth = 0, value_depth = 0;
  double scale = 1;
};
LinearAttentionShape linear_attention_shape(const Problem& problem);

}  // namespace ridgeline
