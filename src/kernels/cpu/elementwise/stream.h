// When stores should go past the caches.
#pragma once

#include <algorithm>
#include <cstdint>

#include "machine/probe.h"

namespace ridgeline::cpu {

/// Bytes read and written from which on non-temporal stores pay: the output will have left the last-level cache before
/// anybody reads it. What a container shows as L3 is shared with others (480 MiB shown here, plain copies slow down
/// from 64 MiB on), so it counts for 64 MiB at most. Measured on one thread, copies of 64, 128 and 256 MB: plain
/// 17, 6.2, 5.2 GB/s, non-temporal 26, 7.5, 8.3 (under load); from 4 to 32 MB they are equal, and the reader after them
/// wants the cache.
inline int64_t stream_threshold_bytes() {
  return std::max<int64_t>(8 << 20, std::min<int64_t>(this_cpu().caches.l3, 64 << 20) / 2);
}

}  // namespace ridgeline::cpu
