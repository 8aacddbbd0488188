// The loops that the probes run: as much of one thing as a core can do. Each comes in the ways that won on some
// machine.
#pragma once

#include <cstdint>
#include <span>

#include "machine/ceilings.h"

namespace ridgeline::probe {

/// A compute loop: runs about 20 us and returns how many operations it did (a multiply-add is two).
struct ComputeWay {
  const char* name;
  const char* feature;  // that this_cpu() must have; "" for any
  int64_t (*run)();
};
std::span<const ComputeWay> f32_ways();
std::span<const ComputeWay>
bf16_ways();  // empty where the architecture has no dot product for it: f32 is its peak then
std::span<const ComputeWay> u8s8_ways();

/// The memory loops walk a ring of `size` bytes (a power of two, at least 4 KiB) from offset `begin` for `bytes` bytes
/// (a multiple of 4 KiB), so that small working sets cost no loop ends. Pointers are aligned to 64.
struct Ring {
  uint8_t* base;    // read from; null for write
  uint8_t* target;  // written to; null for read
  int64_t size;
  int64_t begin, bytes;
};
struct MemoryWay {
  const char* name;
  void (*run)(const Ring& ring);
};
std::span<const MemoryWay> read_ways();
std::span<const MemoryWay> copy_ways();
std::span<const MemoryWay> write_ways();

/// One pass over n floats, a multiple of 64: out = function(in); divide is in / (in + 1).
struct SpecialWay {
  const char* name;
  const char* feature;
  bool only_divisions;  // the same as another way for functions that do not divide
  void (*run)(SpecialFunction function, const float* in, float* out, int64_t n);
};
std::span<const SpecialWay> special_function_ways();

/// Keeps a result alive.
template <typename T>
inline void use(const T& value) {
  asm volatile("" : : "r"(&value) : "memory");
}

}  // namespace ridgeline::probe
