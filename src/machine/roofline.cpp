#include "machine/roofline.h"

#include <algorithm>

namespace ridgeline {

std::string_view name(Bound bound) {
  switch (bound) {
    case Bound::kCompute:
      return "compute";
    case Bound::kMemory:
      return "memory";
    case Bound::kLaunch:
      return "launch";
    case Bound::kLatency:
      return "latency";
  }
  return "";
}

Floor floor_of(const Work& work, const Ceilings& ceilings, int threads) {
  Floor floor;
  floor.compute_ns = ceilings.compute_ns(work.dtype, work.flops, threads);
  double special_ns = 0;
  for (int f = 0; f < kSpecialFunctions; ++f)
    special_ns += ceilings.special_ns(SpecialFunction(f), work.special[size_t(f)], threads);
  if (work.other_special) {
    double fastest = 0;
    for (const Rate& rate : ceilings.special_per_ns) fastest = std::max(fastest, rate.at(threads, ceilings.cores));
    special_ns += double(work.other_special) / fastest;
  }
  // A GPU's matrix instructions and its functions run on units of their own, at the same time.
  const bool apart = ceilings.f16.all > 0 && work.dtype != DType::kF32 && work.dtype != DType::kF64;
  floor.compute_ns = apart ? std::max(floor.compute_ns, special_ns) : floor.compute_ns + special_ns;
  const MemoryLevel level = work.level.value_or(ceilings.level_of(work.read_bytes + work.write_bytes, threads));
  floor.memory_ns = ceilings.stream_ns(work.read_bytes, work.write_bytes, threads, level);
  floor.time_ns = std::max(floor.compute_ns, floor.memory_ns);
  floor.bound = floor.compute_ns > floor.memory_ns ? Bound::kCompute : Bound::kMemory;
  if (floor.time_ns < ceilings.launch_ns.at(threads, ceilings.cores)) floor.bound = Bound::kLaunch;
  return floor;
}

}  // namespace ridgeline
