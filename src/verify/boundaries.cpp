#include "verify/boundaries.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "verify/bisect.h"
#include "verify/compare.h"
#include "verify/reference_run.h"
#include "verify/graph_tolerance.h"

namespace ridgeline {
namespace {

/// The name of each kernel step's outputs, "" where two nodes share a name.
class ValueNames {
 public:
  explicit ValueNames(const Graph& graph) : graph_(graph) {
    for (NodeId id : graph.order()) {
      const auto [at, is_new] = by_name_.emplace(graph.node(id).name, id);
      if (!is_new) at->second = kNoNode;
    }
  }
  std::string of(const Step& step, int output) const {
    if (step.kind != Step::Kind::kKernel) return {};  // copies change layouts, not values
    const auto found = by_name_.find(step.name);
    if (found == by_name_.end() || found->second == kNoNode) return {};
    const Node& node = graph_.node(found->second);
    if (node.op != step.call.problem.op) return {};  // a step that only shares the node's name
    const ValueId v = node.output(output);
    return v == kNoValue ? std::string() : graph_.value(v).name;
  }

 private:
  const Graph& graph_;
  std::unordered_map<std::string, NodeId> by_name_;
};

struct Observed {
  std::string node;
  Tensor tensor;
};

/// Runs the plan and keeps what its steps wrote, by value name.
void run_and_observe(const Graph& optimized, const std::shared_ptr<const Plan>& plan,
                     const std::map<std::string, Tensor>& feeds, const std::set<std::string>& wanted,
                     std::map<std::string, Observed>& observed, std::vector<std::string>& order,
                     std::vector<Tensor>& outputs) {
  Executor executor(plan);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const PlanTensor& t : plan->inputs) in.push_back(feeds.at(t.name).data());
  for (const PlanTensor& t : plan->outputs) {
    outputs.push_back(Tensor::zeros(t.dtype, t.shape));
    out.push_back(outputs.back().data());
  }
  const ValueNames names(optimized);
  executor.run_observed(in, out, [&](int step, int output, const TensorView& view) {
    const Step& s = plan->steps[size_t(step)];
    const std::string name = names.of(s, output);
    if (!wanted.count(name) || observed.count(name)) return;
    Tensor copy(view.dtype, view.shape());
    copy_elements(view, copy.view());
    observed[name] = {s.name, copy};
    order.push_back(name);
  });
}

}  // namespace

Verification verify(const Graph& graph, const std::map<std::string, Tensor>& feeds, const VerifyOptions& options) {
  std::vector<Tensor> inputs;
  for (ValueId v : graph.inputs) {
    const auto found = feeds.find(graph.value(v).name);
    if (found == feeds.end()) fail(ErrorCode::kBadInput, "the input '{}' was not given", graph.value(v).name);
    inputs.push_back(found->second);
  }
  const std::vector<double> tolerances = value_tolerances(graph, options.plan.bindings);
  std::set<std::string> wanted;
  for (int v = 0; v < graph.value_count(); ++v)
    if (graph.value(v).producer != kNoNode) wanted.insert(graph.value(v).name);

  std::map<std::string, Observed> observed;
  std::vector<std::string> order;
  std::vector<Tensor> outputs;
  const OptimizedPlan candidate = optimize_and_plan(graph, options, options.pipeline.most_rewrites);
  run_and_observe(candidate.graph, candidate.plan, feeds, wanted, observed, order, outputs);

  std::map<std::string, Boundary> found;
  ReferenceRun reference;
  reference.threads = std::max(1, options.plan.threads);
  reference.observe = [&](ValueId v, const Tensor& right) {
    const std::string& name = graph.value(v).name;
    const auto at = observed.find(name);
    if (at == observed.end()) return;
    // A pass may keep a name for what has another shape by now (a merged batch): that is no boundary.
    if (at->second.tensor.shape() == right.shape() && at->second.tensor.dtype() == right.dtype())
      found[name] = {name, at->second.node, max_error(at->second.tensor, right), tolerances[size_t(v)]};
    observed.erase(at);
  };
  const std::vector<Tensor> right = run_reference(graph, inputs, reference);

  Verification result;
  for (const std::string& name : order)
    if (const auto at = found.find(name); at != found.end()) result.boundaries.push_back(at->second);
  for (size_t o = 0; o < right.size(); ++o) {
    const Value& value = graph.value(graph.outputs[o]);
    const Boundary b{value.name, "", max_error(outputs[o], right[o]), tolerances[size_t(graph.outputs[o])]};
    result.max_error = std::max(result.max_error, b.error);
    result.tolerance = std::max(result.tolerance, b.tolerance);
    result.boundaries.push_back(b);
  }
  result.checked_boundaries = int(result.boundaries.size());
  for (const Boundary& b : result.boundaries)
    if (!(b.error <= b.tolerance)) result.wrong.push_back(b);
  result.ok = result.wrong.empty();
  if (!result.ok && options.bisect) result.culprit = find_culprit(graph, feeds, right, tolerances, options);
  return result;
}

}  // namespace ridgeline
