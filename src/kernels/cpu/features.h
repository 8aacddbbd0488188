// What decides whether an instruction beyond the vectors may be used.
#pragma once

#include <string_view>

#include "machine/probe.h"

namespace ridgeline::cpu {

/// has_feature (simd.h) of a processor that may be another than this one: tests ask for AMX where there is none.
bool allows(const Cpu& cpu, std::string_view feature);

}  // namespace ridgeline::cpu
