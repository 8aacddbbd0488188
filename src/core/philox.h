// Random numbers by counting: the n-th block is a function of the key and n alone, so that any thread makes any part.
// Source: Salmon, Moraes, Dror, Shaw, Parallel random numbers: as easy as 1, 2, 3, 2011 (Philox4x32-10).
#pragma once

#include <array>
#include <cstdint>

namespace ridgeline {

struct PhiloxKey {
  uint32_t low = 0, high = 0;
};

inline constexpr uint32_t kPhiloxMultiplier0 = 0xD2511F53u, kPhiloxMultiplier1 = 0xCD9E8D57u;
inline constexpr uint32_t kPhiloxWeyl0 = 0x9E3779B9u, kPhiloxWeyl1 = 0xBB67AE85u;
inline constexpr int kPhiloxRounds = 10;

/// Four words of 32 random bits.
constexpr std::array<uint32_t, 4> philox(PhiloxKey key, uint64_t block) {
  std::array<uint32_t, 4> c = {uint32_t(block), uint32_t(block >> 32), 0, 0};
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t a = uint64_t(kPhiloxMultiplier0) * c[0], b = uint64_t(kPhiloxMultiplier1) * c[2];
    c = {uint32_t(b >> 32) ^ c[1] ^ key.low, uint32_t(b), uint32_t(a >> 32) ^ c[3] ^ key.high, uint32_t(a)};
    key.low += kPhiloxWeyl0;
    key.high += kPhiloxWeyl1;
  }
  return c;
}

}  // namespace ridgeline
