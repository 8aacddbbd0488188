// Counters of work: they stop at 2^60 and never wrap. What they count is printed and compared, not allocated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

namespace ridgeline {

/// So far below 2^63 that a few of them may be added as they are.
inline constexpr int64_t kMostCounted = int64_t(1) << 60;

inline int64_t saturated_sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMostCounted : std::min(sum, kMostCounted);
}

/// Of factors of at least 0.
inline int64_t saturated_product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  bool most = false;
  for (const int64_t factor : factors) {
    if (factor == 0) return 0;
    most = most || __builtin_mul_overflow(product, factor, &product) || product > kMostCounted;
    if (most) product = kMostCounted;
  }
  return product;
}

}  // namespace ridgeline
