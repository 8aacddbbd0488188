// Random f32 numbers, many blocks of Philox at a time.
#pragma once

#include <cstdint>

#include "core/philox.h"

namespace ridgeline::cpu {

/// y[4 i + j] for the blocks i of [begin, end), as ops/random.h says: low + range * u, or mean + scale * a normal
/// number. `end` is that of the whole blocks; true: done. False: this machine's level has no vectors for it.
bool fill_uniform(PhiloxKey key, uint64_t begin, uint64_t end, float low, float range, float* y);
bool fill_normal(PhiloxKey key, uint64_t begin, uint64_t end, float mean, float scale, float* y);

}  // namespace ridgeline::cpu
