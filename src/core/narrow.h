// f32 to bf16, many at a time: to nearest even, NaN stays one (as f32_to_bf16, whose call alone costs more).
#pragma once

#include <cstdint>
#include <cstring>

namespace ridgeline {

inline uint16_t narrow_to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  return uint16_t((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
}

inline void narrow_to_bf16(const float* from, int64_t n, uint16_t* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = narrow_to_bf16(from[i]);
}

}  // namespace ridgeline
