#include "verify/boundaries.h"

#include <algorithm>
#include <set>
#include <unordered_map>

#include "verify/bisect.h"
#include "verify/compare.h"
#include "verify/graph_tolerance.h"
#include "verify/quantized_values.h"
#include "verify/reference_run.h"

namespace ridgeline {
namespace {

/// Which value of the untouched graph a step's output stands for: the one value that leaves the set of imported nodes
/// that the step stands for. (Not the value of the same name: a contraction that takes its epilogue in keeps the name
/// it had without it.)
class Boundaries {
 public:
  Boundaries(const Graph& imported, const Graph& optimized) : imported_(imported), optimized_(optimized) {
    const std::vector<NodeId> order = imported.order();
    for (size_t k = 0; k < order.size(); ++k) imported_node_[imported.node(order[k]).name] = {order[k], int(k)};
    for (NodeId id : optimized.order()) {
      const Node& node = optimized.node(id);
      by_name_.emplace(node.name, id);
      for (const std::string& origin : origins_of(node)) ++claims_[origin];
    }
  }

  /// kNoValue where the step is no boundary: a copy, or one of several steps that share an imported node.
  ValueId of(const Step& step, int output) const {
    if (step.kind != Step::Kind::kKernel) return kNoValue;
    const auto found = by_name_.find(step.name);
    if (found == by_name_.end()) return kNoValue;
    const Node& node = optimized_.node(found->second);
    if (node.op != step.call.problem.op) return kNoValue;  // a step that only shares the node's name
    std::vector<std::pair<int, ValueId>> leaving;
    std::set<NodeId> inside;
    for (const std::string& origin : origins_of(node)) {
      const auto at = imported_node_.find(origin);
      if (at == imported_node_.end()) return kNoValue;
      // Each reader of a dequantized value has its own: it is what they read, not what they write.
      if (claims_.at(origin) > 1 && imported_.node(at->second.first).is("DequantizeLinear")) continue;
      if (claims_.at(origin) > 1) return kNoValue;
      inside.insert(at->second.first);
    }
    for (const std::string& origin : origins_of(node)) {
      const auto& [id, place] = imported_node_.at(origin);
      if (!inside.count(id)) continue;
      for (ValueId v : imported_.node(id).outputs) {
        if (v == kNoValue) continue;
        bool leaves = imported_.value(v).is_output;
        for (NodeId user : imported_.users(v)) leaves = leaves || !inside.count(user);
        if (leaves) leaving.push_back({place, v});
      }
    }
    std::sort(leaving.begin(), leaving.end());
    leaving.erase(std::unique(leaving.begin(), leaving.end()), leaving.end());
    if (leaving.size() == 1 && output == 0) return leaving[0].second;
    // An addition and its normalization: output 0 is the later one.
    if (leaving.size() == 2 && node.outputs.size() == 2 && node.op->domain == "ridgeline")
      return leaving[output == 0 ? 1 : 0].second;
    return kNoValue;
  }

 private:
  static std::vector<std::string> origins_of(const Node& node) {
    std::vector<std::string> origins = node.origin.empty() ? std::vector<std::string>{node.name} : node.origin;
    std::sort(origins.begin(), origins.end());
    origins.erase(std::unique(origins.begin(), origins.end()), origins.end());
    return origins;
  }

  const Graph &imported_, &optimized_;
  std::unordered_map<std::string, std::pair<NodeId, int>> imported_node_;
  std::unordered_map<std::string, NodeId> by_name_;
  std::unordered_map<std::string, int> claims_;
};

struct Observed {
  std::string node;
  Tensor tensor;
  bool rounded = false;  // stored in 16 bits where the graph has f32
};

/// Runs the plan and keeps what its steps wrote, by the imported graph's value.
void run_and_observe(const Boundaries& boundaries, const std::shared_ptr<const Plan>& plan,
                     const std::map<std::string, Tensor>& feeds, std::map<ValueId, Observed>& observed,
                     std::vector<ValueId>& order, std::vector<Tensor>& outputs) {
  Executor executor(plan);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const PlanTensor& t : plan->inputs) in.push_back(feeds.at(t.name).data());
  for (const PlanTensor& t : plan->outputs) {
    outputs.push_back(Tensor::zeros(t.dtype, t.shape));
    out.push_back(outputs.back().data());
  }
  executor.run_observed(in, out, [&](int step, int output, const TensorView& view) {
    const Step& s = plan->steps[size_t(step)];
    const ValueId v = boundaries.of(s, output);
    if (v == kNoValue || observed.count(v)) return;
    Tensor copy(view.dtype, view.shape());
    copy_elements(view, copy.view());
    observed[v] = {s.name, copy};
    order.push_back(v);
  });
}

/// What a step stored in 16 bits, as the f32 that it stands for.
Tensor widened(const Tensor& y, const Tensor& right) {
  if ((y.dtype() != DType::kBF16 && y.dtype() != DType::kF16) || right.dtype() != DType::kF32) return y;
  Tensor wide(DType::kF32, y.shape());
  for (int64_t k = 0; k < y.elements(); ++k) wide.as<float>()[k] = float(y.f64(k));
  return wide;
}

}  // namespace

Verification verify(const Graph& graph, const std::map<std::string, Tensor>& feeds, const VerifyOptions& options) {
  const std::vector<Tensor> inputs = inputs_in_order(graph, feeds);
  std::map<ValueId, Observed> observed;
  std::vector<ValueId> order;
  std::vector<Tensor> outputs;
  const OptimizedPlan candidate = optimize_and_plan(graph, options, options.pipeline.most_rewrites);
  run_and_observe(Boundaries(graph, candidate.graph), candidate.plan, feeds, observed, order, outputs);

  // A value that lies between two levels may go either way, and what follows goes with it. So the reference goes on
  // from the plan's own bytes (and from what it stored in 16 bits), and each stretch between two of them is judged by
  // itself.
  std::map<ValueId, Boundary> found;
  QuantizedRun quantized(graph);
  ReferenceRun reference;
  reference.threads = std::max(1, options.plan.threads);
  reference.observe = [&](ValueId v, const Tensor& right) {
    quantized.observe(v, right);
    const auto at = observed.find(v);
    if (at == observed.end()) return;
    Tensor& y = at->second.tensor;
    at->second.rounded = y.dtype() != right.dtype();
    y = widened(y, right);
    // Another shape: a reshape or transpose was taken in as well, and the step writes what comes before or after it.
    if (y.shape() == right.shape() && y.dtype() == right.dtype())
      found[v] = {graph.value(v).name, at->second.node, max_error(y, right), 0};
    else
      observed.erase(at);
  };
  reference.replace = [&](ValueId v, const Tensor& right) -> Tensor {
    const auto at = observed.find(v);
    if (at == observed.end()) return {};
    const Tensor y = at->second.tensor;
    const bool rounded = at->second.rounded;
    observed.erase(at);
    return quantized.restart(v, y, right, rounded) ? y : Tensor();
  };
  std::vector<Tensor> right = run_reference(graph, inputs, reference);

  Verification result;
  result.restarts = int(quantized.values().restarted.size());
  // A pass of a lower precision that runs because it was named, in whichever way.
  std::set<std::string, std::less<>> lossy = options.pipeline.lossy;
  lossy.insert(options.pipeline.only.begin(), options.pipeline.only.end());
  QuantizedValues levels = quantized.values();
  levels.rounding = rounding_of(lossy);
  const std::vector<double> stretches = value_tolerances(graph, options.plan.bindings, levels);
  for (ValueId v : order) {
    const auto at = found.find(v);
    if (at == found.end()) continue;
    at->second.tolerance = stretches[size_t(v)];
    quantized.judge(v, stretches, at->second.error, at->second.tolerance);
    result.boundaries.push_back(at->second);
  }
  const auto judge_outputs = [&](const std::vector<double>& tolerances) {
    for (size_t o = 0; o < right.size(); ++o) {
      const Value& value = graph.value(graph.outputs[o]);
      result.boundaries.push_back(
          {value.name, "", max_error(outputs[o], right[o]), tolerances[size_t(graph.outputs[o])]});
    }
  };
  if (quantized.parted()) {  // the untouched reference as well, for what comes out
    judge_outputs(stretches);
    QuantizedRun whole(graph);
    ReferenceRun untouched;
    untouched.threads = reference.threads;
    untouched.observe = [&](ValueId v, const Tensor& t) { whole.observe(v, t); };
    right = run_reference(graph, inputs, untouched);
    quantized = std::move(whole);
  }
  levels.level = quantized.values().level;
  levels.restarted.clear();
  const std::vector<double> tolerances = value_tolerances(graph, options.plan.bindings, levels);
  judge_outputs(tolerances);
  for (size_t o = 0; o < right.size(); ++o) {
    const Boundary& b = result.boundaries[result.boundaries.size() - right.size() + o];
    result.max_error = std::max(result.max_error, b.error);
    result.tolerance = std::max(result.tolerance, b.tolerance);
  }
  result.checked_boundaries = int(result.boundaries.size());
  for (const Boundary& b : result.boundaries)
    if (!(b.error <= b.tolerance)) result.wrong.push_back(b);
  result.ok = result.wrong.empty();
  if (!result.ok && options.bisect) result.culprit = find_culprit(graph, feeds, right, tolerances, options);
  return result;
}

}  // namespace ridgeline
