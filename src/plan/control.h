// Steps with subgraphs: a branch or a loop over plans of its bodies.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "ir/control.h"
#include "plan/plan.h"

namespace ridgeline {

/// What the steps of a body took while a BodyProfiling lived, summed over iterations and runs.
struct BodyTimes {
  explicit BodyTimes(size_t steps) : ns(steps), runs(0) {}
  std::vector<std::atomic<int64_t>> ns;
  std::atomic<int64_t> runs;
};

/// While one lives, bodies are timed step by step.
class BodyProfiling {
 public:
  BodyProfiling();
  ~BodyProfiling();
  BodyProfiling(const BodyProfiling&) = delete;
  BodyProfiling& operator=(const BodyProfiling&) = delete;
};

/// What the body of a step is run by; null where no run may come to it.
struct PlannedBody {
  std::string label;  // "then", "else", "body"
  std::shared_ptr<const Plan> plan;
  std::string why_not;  // the reason why there is no plan: the error of a run that needs one
  std::shared_ptr<BodyTimes> times;
};

/// The state of a step of kind kBranch or kLoop (KernelCall::state), whose workspace has `arena_bytes` for the bodies,
/// then the loop's own values.
class ControlState;

/// Bodies of the step; empty for one of another kind.
const std::vector<PlannedBody>& planned_bodies(const Step& step);

/// A step's call for these bodies. The problem's operands are row-major; `why_not` is set, and no kernel, if this node
/// has to be interpreted.
struct ControlCall {
  KernelCall call;
  Step::Kind kind = Step::Kind::kBranch;
  double estimate_ns = 0;
};
ControlCall bind_control(const Problem& problem, std::vector<PlannedBody> bodies);

/// A call for a node whose bodies' shapes change while it runs: its bodies are planned when they are met.
KernelCall bind_dynamic_control(const Problem& problem, const PlanOptions& options);

/// Is every value of the node's bodies of one shape in all iterations, known before the run? Else the reason.
/// `bodies` gets a graph for each, its inputs as the node gives them; empty where a branch does not fit.
std::string bind_bodies(const Graph& graph, const Node& node, std::vector<std::shared_ptr<Graph>>& bodies,
                        std::vector<std::string>& why_not);

}  // namespace ridgeline
