// Several sessions of one plan at once in one process: do they fight?
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "session/session.h"
#include "tune/timing.h"

namespace ridgeline {

struct SessionsRow {
  int sessions = 1;
  double runs_per_s = 0;  // of all together; median over the rounds
  double ratio = 1;       // to one session's, of the same round; median
  Samples latency;        // of single runs, in ns
};

/// 1 to `most` sessions, each a thread that runs the plan without a pause; `seconds` in all, in rounds that take each
/// count once, forwards then backwards. Sessions share the packed weights and have arenas of their own.
std::vector<SessionsRow> measure_sessions(const std::shared_ptr<const Plan>& plan, const Feeds& feeds, int most,
                                          double seconds);

}  // namespace ridgeline
