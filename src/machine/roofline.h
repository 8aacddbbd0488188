// The least time that the machine's ceilings allow for a piece of work, and which ceiling it is.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "machine/ceilings.h"

namespace ridgeline {

enum class Bound : uint8_t { kCompute, kMemory, kLaunch, kLatency };
std::string_view name(Bound bound);  // compute memory launch latency

/// What a step does at the least.
struct Work {
  int64_t flops = 0;  // executed; a multiply-add is two; special functions not counted again
  int64_t read_bytes = 0, write_bytes = 0;
  DType dtype = DType::kF32;                            // of the arithmetic
  std::array<int64_t, kSpecialFunctions> special = {};  // elements that go through each
  int64_t other_special = 0;         // through one that is not named (Cost::special): the rate of the fastest
  std::optional<MemoryLevel> level;  // where the bytes are; nothing: what holds the working set
};

struct Floor {
  double time_ns = 0;
  Bound bound = Bound::kMemory;
  double compute_ns = 0, memory_ns = 0;  // the two that were compared
};

/// The larger of arithmetic (FLOPs and special functions share the vector units, so they add; beside the matrix units
/// of a GPU they do not) and memory traffic. Bound is kLaunch if that is less than what it costs to start the threads.
Floor floor_of(const Work& work, const Ceilings& ceilings, int threads);

/// floor / measured. Over 1.05 is an error of this model.
inline double roof_share(const Floor& floor, double measured_ns) {
  return measured_ns > 0 ? floor.time_ns / measured_ns : 0;
}

}  // namespace ridgeline
