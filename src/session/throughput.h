// Several copies of one plan side by side: what a machine serves when requests never run out.
#pragma once

#include <memory>

#include "session/session.h"

namespace ridgeline {

struct Throughput {
  int instances = 0, threads_each = 1;
  int64_t runs = 0;  // of all instances, within `seconds`
  double seconds = 0;
  double runs_per_s() const { return seconds > 0 ? double(runs) / seconds : 0; }
};

/// Runs `instances` executors of the plan at the same time, each with buffers of its own, for so many seconds.
Throughput measure_throughput(std::shared_ptr<const Plan> plan, const Feeds& feeds, int instances, double seconds);

}  // namespace ridgeline
