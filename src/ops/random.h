// Which random number stands where: a function of the seed and the element's place, whatever the threads.
#pragma once

#include <cstdint>

#include "core/philox.h"
#include "ir/attributes.h"
#include "ridgeline/dtype.h"

namespace ridgeline {

/// The streams of one seed: one a distribution.
enum class RandomStream : uint32_t { kUniform = 1, kNormal = 2, kMultinomial = 3 };
PhiloxKey random_key(const Attributes& attributes, RandomStream stream);

/// Bits of a uniform number of [0, 1): as many as the type has digits, so that none is rounded up to 1.
constexpr int random_bits(DType dtype) {
  return dtype == DType::kF64 ? 53 : dtype == DType::kF32 ? 24 : dtype == DType::kF16 ? 11 : 8;
}
/// Numbers a block of Philox gives: of 53 bits two, else four.
constexpr int randoms_per_block(DType dtype) { return dtype == DType::kF64 ? 2 : 4; }

/// In [0, 1), the `lane`-th of a block.
constexpr double uniform_of(const std::array<uint32_t, 4>& block, int lane, DType dtype) {
  if (dtype == DType::kF64) {
    const uint64_t bits = uint64_t(block[size_t(2 * lane)]) << 32 | block[size_t(2 * lane + 1)];
    return double(bits >> 11) * 0x1p-53;
  }
  const int bits = random_bits(dtype);
  return double(block[size_t(lane)] >> (32 - bits)) / double(int64_t(1) << bits);
}
/// The same for a normal number's radius and angle, whose bits do not hang on the type.
constexpr double normal_uniform_of(const std::array<uint32_t, 4>& block, int lane, DType dtype) {
  return uniform_of(block, lane, dtype == DType::kF64 ? dtype : DType::kF32);
}

}  // namespace ridgeline
