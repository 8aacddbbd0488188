// Which rewrite breaks a model: the pipeline is stopped after ever fewer rewrites.
#pragma once

#include <memory>

#include "verify/boundaries.h"

namespace ridgeline {

struct OptimizedPlan {
  Graph graph;
  std::shared_ptr<const Plan> plan;
  Decisions decisions;
};
/// A copy of the graph after at most so many rewrites (-1: all), and its plan.
OptimizedPlan optimize_and_plan(const Graph& graph, const VerifyOptions& options, int most_rewrites);

/// The first rewrite after which an output is over its tolerance, as "pass at 'node', 'node'"; what is to blame if it
/// is none.
std::string find_culprit(const Graph& graph, const std::map<std::string, Tensor>& feeds,
                         const std::vector<Tensor>& right, const std::vector<double>& tolerances,
                         const VerifyOptions& options);

}  // namespace ridgeline
