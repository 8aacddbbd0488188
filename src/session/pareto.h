// Plans between which no choice is better in both time and memory.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "session/session.h"
#include "tune/timing.h"

namespace ridgeline {

struct ParetoOptions {
  CompileOptions compile;
  double seconds = 3;  // of measurement of all plans together, at least
  std::function<void(const std::string&)> progress;
};

struct ParetoPlan {
  std::shared_ptr<const Plan> plan;
  double ns_per_byte = 0;  // the price of memory that chose it
  Samples samples;
  int64_t plan_bytes = 0;            // Plan::peak_bytes_with_packing when its weights are consumed
  std::vector<std::string> changes;  // against the plan of the least time: "node: kernel tile -> kernel tile, +N MB"
};

struct Pareto {
  std::vector<ParetoPlan> plans;  // most memory and least time first; none dominated
  int tried = 0;                  // different plans that were measured
};

/// Plans at every price of memory, measured interleaved; those that another one beats in time and memory are dropped.
Pareto pareto_plans(Model& model, const ParetoOptions& options);

}  // namespace ridgeline
