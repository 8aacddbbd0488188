#include "kernels/cpu/simd.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <atomic>
#include <cstdlib>

#include "kernels/cpu/features.h"
#include "ridgeline/error.h"

namespace ridgeline::cpu {

namespace {

Isa detect() {
  const int64_t targets = hwy::SupportedTargets();
  if (targets & HWY_NEON) return Isa::kNeon;
  if (targets & HWY_AVX3) return Isa::kAvx512;
  return (targets & HWY_AVX2) ? Isa::kAvx2 : Isa::kScalar;
}

// Kept: each question to Highway is several CPUIDs, some 20 us in a virtual machine.
std::atomic<int> active{-1};

// What may be used beyond the vectors: nothing, AVX-512's dot products, or all.
enum class Beyond { kNothing, kDotProducts, kAll };
std::atomic<Beyond> beyond{Beyond::kAll};

}  // namespace

Isa active_isa() {
  int isa = active.load(std::memory_order_relaxed);
  if (isa < 0) active.store(isa = int(detect()), std::memory_order_relaxed);
  return Isa(isa);
}

const char* name(Isa isa) {
  constexpr const char* kNames[] = {"scalar", "avx2", "avx512", "neon"};
  return kNames[size_t(isa)];
}

void limit_isa(const std::string& level) {
  active.store(-1);
  hwy::SetSupportedTargetsForTest(0);  // back to what the machine has
  int64_t wanted = HWY_SCALAR | HWY_EMU128;
  beyond = level == "native" || level == "neon" ? Beyond::kAll
           : level == "vnni"                    ? Beyond::kDotProducts
                                                : Beyond::kNothing;
  if (level == "native") return;
  const bool wide = level == "avx512" || level == "vnni";
  if (level == "avx2" || wide) wanted |= HWY_AVX2;
  if (wide) wanted |= HWY_AVX3;
  if (level == "neon") wanted |= HWY_NEON;
  if (level != "scalar" && level != "avx2" && !wide && level != "neon")
    fail(ErrorCode::kUsage, "RIDGELINE_ISA: '{}' is none of scalar, avx2, avx512, vnni, neon, native", level);
  // The baseline's bit is not in what Highway detects, so it is added; a mask of 0 would lift the limit.
  hwy::SetSupportedTargetsForTest((hwy::SupportedTargets() & wanted) | HWY_STATIC_TARGET);
}

bool allows(const Cpu& cpu, std::string_view feature) {
  const bool allowed = beyond == Beyond::kAll || (beyond == Beyond::kDotProducts && !feature.starts_with("amx"));
  return allowed && cpu.has(feature);
}
bool has_feature(std::string_view feature) { return allows(this_cpu(), feature); }

void limit_isa_from_environment() {
  if (const char* level = std::getenv("RIDGELINE_ISA"); level && *level) limit_isa(level);
}

}  // namespace ridgeline::cpu
