// How many scores attention needs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/saturate.h"

namespace ridgeline {

/// The sum over i < count of first + i, each held to [0, most]: the keys below a bound that moves on with the queries.
inline int64_t seen_keys(int64_t first, int64_t count, int64_t most) {
  const int64_t low = std::clamp<int64_t>(-first, 0, count), high = std::max(low, std::clamp(most - first, low, count));
  const __int128 between = high - low, rest = count - high;
  const __int128 sum = between * first + (between * (low + high - 1)) / 2 + rest * most;
  return sum > kMostCounted ? kMostCounted : int64_t(sum);
}

}  // namespace ridgeline
