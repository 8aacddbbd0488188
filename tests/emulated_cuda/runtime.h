// What an emulated kernel and the emulator share.
#pragma once

#include <cstdint>

struct EmulatedRuntime {
  void (*block_barrier)();
  /// Lanes of `mask` wait for each other; each gives a value, and all see all 32 afterwards.
  const uint64_t* (*warp_exchange)(unsigned mask, uint64_t value);
};
struct EmulatedIndex {
  unsigned x, y, z;
};
