// The ladder: the same model at each stage of optimization, measured side by side and compared with the reference.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "session/session.h"
#include "tune/timing.h"

namespace ridgeline {

struct StageResult {
  Stage stage = Stage::kUnfused;
  Samples samples;         // of the model, interleaved with the other stages
  double items_per_s = 0;  // dim 0 of the first input, over the median
  int64_t peak_bytes = 0, bytes_moved = 0, flops = 0, executed_flops = 0;
  int kernels = 0;
  int reorders = 0;           // of the kernels: copies into another layout
  int64_t reorder_bytes = 0;  // that they read and write
  double max_error = 0;       // largest |y - reference| over largest |reference|, over all outputs
  double gain = 0;            // over the stage before, by paired samples: 0.1 is 10 % less time
  bool undone = false;        // did not pay: the stage runs the plan of the one before
  std::string note;           // what was undone, in words
};

struct StepProfile {
  const Step* step = nullptr;
  double time_us = 0, wait_us = 0;  // medians
};

struct Ladder {
  std::vector<StageResult> stages;
  double tolerance = 0;
  double floor_ms = 0;  // of the last stage's steps: the same for all stages
  int64_t reference_items = 0;
  Compiled final;  // what the last stage runs
  std::vector<Decision> decisions;
  std::vector<StepProfile> profile;  // of the final plan
};

struct LadderOptions {
  int threads = 0;
  std::vector<std::string> disabled;
  std::set<std::string, std::less<>> undone_nodes;  // rewrites that a strategy left out, in every stage
  std::set<std::string, std::less<>> lossy;         // passes of the last stage that were asked for by name
  /// PipelineOptions::only_nodes: the layers that a search for precisions lowers.
  std::map<std::string, std::set<std::string, std::less<>>, std::less<>> only_nodes;
  DeviceKind device = DeviceKind::kCpu;
  double ns_per_byte = 0;  // price of memory (PlanOptions), in every stage
  double seconds = 3;      // of interleaved measurement, at least; slow models get at least seven rounds
  const Ceilings* ceilings = nullptr;
  std::function<void(const std::string&)> progress;
};

Ladder build_ladder(Model& model, const LadderOptions& options);

/// Medians of several profiled runs.
std::vector<StepProfile> profile_plan(Runner& runner, const Plan& plan, double seconds);

}  // namespace ridgeline
