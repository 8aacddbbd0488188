#include "kernels/cpu/simd.h"

#include <hwy/highway.h>
#include <hwy/targets.h>

#include <atomic>
#include <cstdlib>

#include "ridgeline/error.h"

namespace ridgeline::cpu {

namespace {

Isa detect() {
  const int64_t targets = hwy::SupportedTargets();
  if (targets & HWY_AVX3) return Isa::kAvx512;
  return (targets & HWY_AVX2) ? Isa::kAvx2 : Isa::kScalar;
}

// Kept: each question to Highway is several CPUIDs, some 20 us in a virtual machine.
std::atomic<int> active{-1};

}  // namespace

Isa active_isa() {
  int isa = active.load(std::memory_order_relaxed);
  if (isa < 0) active.store(isa = int(detect()), std::memory_order_relaxed);
  return Isa(isa);
}

const char* name(Isa isa) { return isa == Isa::kAvx512 ? "avx512" : isa == Isa::kAvx2 ? "avx2" : "scalar"; }

void limit_isa(const std::string& level) {
  active.store(-1);
  hwy::SetSupportedTargetsForTest(0);  // back to what the machine has
  int64_t wanted = HWY_SCALAR | HWY_EMU128;
  if (level == "native") return;
  if (level == "avx2" || level == "avx512") wanted |= HWY_AVX2;
  if (level == "avx512") wanted |= HWY_AVX3;
  if (level != "scalar" && level != "avx2" && level != "avx512")
    fail(ErrorCode::kUsage, "RIDGELINE_ISA: '{}' is none of scalar, avx2, avx512, native", level);
  // The baseline's bit is not in what Highway detects, so it is added; a mask of 0 would lift the limit.
  hwy::SetSupportedTargetsForTest((hwy::SupportedTargets() & wanted) | HWY_STATIC_TARGET);
}

void limit_isa_from_environment() {
  if (const char* level = std::getenv("RIDGELINE_ISA"); level && *level) limit_isa(level);
}

}  // namespace ridgeline::cpu
