#include <chrono>

#include "session/session.h"

namespace ridgeline {
namespace {

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

PlanOptions plan_options_for(const PipelineOptions& pipeline, const PlanOptions& base) {
  PlanOptions options = base;
  options.views = base.views && !pipeline.none && pipeline.stage == Stage::kWholeGraph;
  return options;
}

Compiled compile(Model& model, const CompileOptions& options, ConstantStore& store) {
  Compiled out;
  const auto begin = std::chrono::steady_clock::now();
  if (options.consume) out.graph = std::move(model.graph);
  else out.graph = model.graph;
  out.pass_times = run_passes(out.graph, options.pipeline, out.decisions);
  out.optimize_ms = ms_since(begin);
  const auto planning = std::chrono::steady_clock::now();
  PlanOptions plan = plan_options_for(options.pipeline, options.plan);
  plan.bindings = model.bindings;
  out.plan = std::make_shared<const Plan>(make_plan(out.graph, plan, store, options.consume));
  out.plan_ms = ms_since(planning);
  return out;
}

Runner::Runner(std::shared_ptr<const Plan> plan, const Feeds& feeds) : executor_(plan) {
  for (const PlanTensor& t : plan->inputs) {
    const auto it = feeds.find(t.name);
    if (it == feeds.end()) fail(ErrorCode::kBadInput, "the input '{}' was not given", t.name);
    if (it->second.dtype() != t.dtype || it->second.shape() != t.shape) {
      fail(ErrorCode::kBadInput, "the input '{}' must be {}{}, but is {}{}", t.name, name(t.dtype), text(t.shape), name(it->second.dtype()), text(it->second.shape()));
    }
    inputs_.push_back(it->second);
    in_.push_back(it->second.data());
  }
  for (const PlanTensor& t : plan->outputs) {
    outputs_.push_back(Tensor::zeros(t.dtype, t.shape));
    out_.push_back(outputs_.back().data());
  }
}

}  // namespace ridgeline
