// Divisions that round up, for blocks and tiles.
#pragma once

#include <cstdint>

namespace ridgeline {

/// For a >= 0, b > 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// The smallest multiple of b that is at least a.
constexpr int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace ridgeline
