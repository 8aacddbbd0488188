#include "verify/bisect.h"

#include <algorithm>

#include "verify/compare.h"

namespace ridgeline {
namespace {

bool is_right(const OptimizedPlan& candidate, const Graph& graph, const std::map<std::string, Tensor>& feeds,
              const std::vector<Tensor>& right, const std::vector<double>& tolerances) {
  Executor executor(candidate.plan);
  std::vector<const void*> in;
  std::vector<void*> out;
  std::vector<Tensor> outputs;
  for (const PlanTensor& t : candidate.plan->inputs) in.push_back(feeds.at(t.name).data());
  for (const PlanTensor& t : candidate.plan->outputs) {
    outputs.push_back(Tensor::zeros(t.dtype, t.shape));
    out.push_back(outputs.back().data());
  }
  executor.run(in, out);
  for (size_t o = 0; o < outputs.size(); ++o)
    if (!(max_error(outputs[o], right[o]) <= tolerances[size_t(graph.outputs[o])])) return false;
  return true;
}

std::vector<const Decision*> applied_of(const Decisions& decisions) {
  std::vector<const Decision*> applied;
  for (const Decision& d : decisions.all)
    if (d.action == Action::kApplied) applied.push_back(&d);
  return applied;
}

std::string describe(const Decision& decision) {
  std::string nodes;
  for (const std::string& node : decision.nodes) nodes += fmt::format("{}'{}'", nodes.empty() ? "" : ", ", node);
  return fmt::format("{} at {}", decision.pass, nodes);
}

}  // namespace

OptimizedPlan optimize_and_plan(const Graph& graph, const VerifyOptions& options, int most_rewrites) {
  OptimizedPlan result{graph, nullptr, {}};
  result.graph.target = options.plan.device;
  PipelineOptions pipeline = options.pipeline;
  pipeline.most_rewrites = most_rewrites;
  if (options.optimize)
    options.optimize(result.graph, pipeline, result.decisions);
  else
    run_passes(result.graph, pipeline, result.decisions);
  PlanOptions plan = options.plan;
  plan.views = plan.views && !pipeline.none && pipeline.stage == Stage::kWholeGraph;
  ConstantStore store;
  result.plan = std::make_shared<const Plan>(make_plan(result.graph, plan, store));
  return result;
}

std::string find_culprit(const Graph& graph, const std::map<std::string, Tensor>& feeds,
                         const std::vector<Tensor>& right, const std::vector<double>& tolerances,
                         const VerifyOptions& options) {
  auto right_after = [&](int rewrites) {
    return is_right(optimize_and_plan(graph, options, rewrites), graph, feeds, right, tolerances);
  };
  const std::vector<Decision> all = optimize_and_plan(graph, options, options.pipeline.most_rewrites).decisions.all;
  int good = 0,
      bad = int(std::count_if(all.begin(), all.end(), [](const Decision&d) { return d.action == Action::kApplied; }));
  if (right_after(options.pipeline.most_rewrites))
    return "no rewrite: the outputs are right, only values between are not";
  if (!right_after(0)) return "no rewrite: a kernel is wrong before any of them";
  while (bad - good > 1) {
    const int middle = good + (bad - good) / 2;
    (right_after(middle) ? good : bad) = middle;
  }
  const OptimizedPlan broken = optimize_and_plan(graph, options, bad);
  const std::vector<const Decision*> applied = applied_of(broken.decisions);
  return int(applied.size()) >= bad ? describe(*applied[size_t(bad) - 1]) : "the plan, not a rewrite";
}

}  // namespace ridgeline
