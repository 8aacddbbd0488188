#include <algorithm>
#include <chrono>
#include <optional>

#include "session/saved_plan.h"

namespace ridgeline {
namespace {

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

const Ceilings* cached_ceilings() {
  static const std::optional<Ceilings> ceilings = load_ceilings(this_cpu().fingerprint());
  return ceilings ? &*ceilings : nullptr;
}

PipelineOptions parse_pipeline(const std::string& passes_given, const std::vector<std::string>& disabled) {
  PipelineOptions options;
  auto check = [](const std::string& name) {
    if (find_pass(name)) return;
    std::string names;
    for (const Pass& pass : passes()) names += (names.empty() ? "" : ", ") + std::string(pass.name);
    fail(ErrorCode::kUsage, "there is no pass '{}'; there are: {}", name, names);
  };
  for (const std::string& name : disabled) {
    check(name);
    options.disabled.insert(name);
  }
  if (passes_given == "none") options.none = true;
  if (passes_given == "none" || passes_given == "all") return options;
  for (size_t at = 0; at <= passes_given.size();) {
    const size_t comma = std::min(passes_given.find(',', at), passes_given.size());
    const std::string name = passes_given.substr(at, comma - at);
    check(name);
    options.only.insert(name);
    at = comma + 1;
  }
  return options;
}

void ask_precision(PipelineOptions& options, const std::string& precision) {
  if (precision == "f32") return;
  if (options.none || !options.only.empty())
    fail(ErrorCode::kUsage, "--precision {} goes with --passes all: else name the pass lower_to_{} in --passes",
         precision, precision);
  options.lossy.insert("lower_to_" + precision);
}

PlanOptions plan_options_for(const PipelineOptions& pipeline, const PlanOptions& base) {
  PlanOptions options = base;
  options.views = base.views && !pipeline.none && pipeline.stage == Stage::kWholeGraph;
  return options;
}

Compiled compile(Model& model, const CompileOptions& options, ConstantStore& store) {
  if (model.saved) return compile_saved(model, options, store);
  Compiled out;
  const auto begin = std::chrono::steady_clock::now();
  if (options.consume)
    out.graph = std::move(model.graph);
  else
    out.graph = model.graph;
  out.graph.target = options.plan.device;
  PipelineOptions pipeline = options.pipeline;
  pipeline.rollback = !options.consume;
  out.pass_times = run_passes(out.graph, pipeline, out.decisions);
  out.optimize_ms = ms_since(begin);
  const auto planning = std::chrono::steady_clock::now();
  PlanOptions plan = plan_options_for(options.pipeline, options.plan);
  plan.bindings = model.bindings;
  if (!plan.ceilings && plan.device == DeviceKind::kCpu) plan.ceilings = cached_ceilings();
  if (options.memory_budget != 0) plan.ns_per_byte = price_within(out.graph, plan, options);
  out.plan = std::make_shared<const Plan>(make_plan(out.graph, plan, store, options.consume));
  out.plan_ms = ms_since(planning);
  return out;
}

Runner::Runner(std::shared_ptr<const Plan> plan, const Feeds& feeds) : executor_(plan) {
  for (const PlanTensor& t : plan->inputs) {
    const auto it = feeds.find(t.name);
    if (it == feeds.end()) fail(ErrorCode::kBadInput, "the input '{}' was not given", t.name);
    if (it->second.dtype() != t.dtype || it->second.shape() != t.shape) {
      fail(ErrorCode::kBadInput, "the input '{}' must be {}{}, but is {}{}", t.name, name(t.dtype), text(t.shape),
           name(it->second.dtype()), text(it->second.shape()));
    }
    inputs_.push_back(it->second);
    in_.push_back(it->second.data());
  }
  for (const PlanTensor& t : plan->outputs) {
    outputs_.push_back(Tensor::zeros(t.dtype, t.shape));
    out_.push_back(outputs_.back().data());
  }
}

std::vector<Samples> measure_runners(const std::vector<Runner*>& runners, const TimingOptions& options) {
  const bool self_timed = !runners.empty() && runners[0]->executor().plan().device != DeviceKind::kCpu;
  if (self_timed) {
    std::vector<std::function<double()>> functions;
    for (Runner* runner : runners) functions.emplace_back([runner] { return runner->timed_ns(); });
    return measure_self_timed(functions, options);
  }
  std::vector<TimedFunction> functions;
  for (Runner* runner : runners) functions.emplace_back([runner] { runner->run(); });
  return measure_interleaved(functions, options);
}

}  // namespace ridgeline
