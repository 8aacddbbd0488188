// profile: where the time of a plan goes. ladder: the same model stage by stage, measured side by side and verified.
#pragma once

#include <string>
#include <vector>

#include "ridgeline/run.h"

namespace ridgeline {

struct ProfiledStep {
  PlannedStep step;
  double time_us = 0;     // median
  double wait_us = 0;     // of that, threads idle at barriers; median
  double roof_share = 0;  // floor / time
};

/// Profiled runs for about so many seconds, at least seven.
std::vector<ProfiledStep> profile(const PlannedModel& plan, const std::map<std::string, Tensor>& inputs,
                                  double seconds = 0.5);

struct LadderStage {
  std::string name;  // unfused, epilogues, residuals, whole graph
  double median_ms = 0, p10_ms = 0, p90_ms = 0;
  int samples = 0;         // interleaved with those of the other stages
  double items_per_s = 0;  // extent 0 of the first input, over the median
  int64_t peak_bytes = 0, bytes_moved = 0, flops = 0;
  int kernels = 0;
  double max_error = 0;  // largest |y - reference| over largest |reference|
  double gain = 0;       // over the stage before, by paired samples: 0.1 is 10 % less time
  bool undone = false;   // did not pay on this machine and shape: runs the plan of the stage before
  std::string note;      // what was undone
};

struct LadderReport {
  std::vector<LadderStage> stages;
  double tolerance = 0;  // for max_error, derived
  double floor_ms = 0;   // of the last stage's steps
  std::vector<Rewrite> rewrites;
  std::vector<ProfiledStep> profile;  // of the last stage
  std::string text;                   // as `ridgeline optimize` prints it
  std::string json;
};

/// Builds, verifies and measures every stage; measures the machine first if it never was. Takes seconds to minutes: the
/// reference is naive (and kept in the cache folder). Throws Error{kUnsupported} if a node has no kernel.
LadderReport ladder(const LoadedModel& model, double seconds = 3, const std::vector<std::string>& disabled_passes = {},
                    Context& context = thread_context());

}  // namespace ridgeline
