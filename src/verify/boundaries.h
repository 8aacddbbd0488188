// Verification of an optimized model: what each step of its plan writes, compared with the reference's value of the
// same name in the untouched graph; and the search for the rewrite that breaks it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "optimize/pipeline.h"
#include "plan/plan.h"

namespace ridgeline {

struct VerifyOptions {
  PipelineOptions pipeline;
  PlanOptions plan;     // its bindings are the model's
  bool bisect = false;  // look for the culprit where something is wrong
  /// Tests plant wrong rewrites here; null: run_passes.
  std::function<void(Graph&, const PipelineOptions&, Decisions&)> optimize;
};

struct Boundary {
  std::string value;  // its name in the untouched graph
  std::string node;   // that writes it in the optimized one
  double error = 0;   // as max_error measures
  double tolerance = 0;
};

struct Verification {
  bool ok = true;
  double max_error = 0;  // over the model's outputs
  double tolerance = 0;  // largest over the model's outputs
  int checked_boundaries = 0;
  int restarts = 0;  // quantized values that the plan wrote and the reference of the later boundaries went on from
  std::vector<Boundary> boundaries;  // outputs included, in the order of the plan
  std::vector<Boundary> wrong;
  std::string culprit;  // "" unless searched for and found: "fold_affine at 'conv1', 'bn1'"
};

/// `graph`: as imported, its inputs at hand in `feeds` by name.
Verification verify(const Graph& graph, const std::map<std::string, Tensor>& feeds, const VerifyOptions& options);

}  // namespace ridgeline
