// LoadedModel, optimize, plan and Run: the public names for what the session does.
#include <algorithm>
#include <list>
#include <mutex>

#include "formats/onnx/export.h"
#include "ridgeline/run.h"
#include "session/api_context.h"
#include "session/api_model.h"
#include "session/load.h"
#include "session/saved_plan.h"
#include "session/session.h"

namespace ridgeline {
namespace {

std::vector<TensorInfo> infos_of(const std::vector<PlanTensor>& tensors) {
  std::vector<TensorInfo> out;
  for (const PlanTensor& t : tensors) out.push_back({t.name, t.dtype, t.shape});
  return out;
}

}  // namespace

LoadedModel LoadedModel::load(const std::string& path, const ModelOptions& options) {
  LoadOptions load;
  load.dims = Bindings(options.dims.begin(), options.dims.end());
  load.inputs = options.inputs;
  load.seed = options.seed;
  auto state = std::make_shared<State>();
  state->model = load_model(path, load);
  return LoadedModel(std::move(state));
}

std::vector<TensorInfo> LoadedModel::inputs() const {
  const Model& model = state_->model;
  std::vector<TensorInfo> out;
  for (ValueId v : model.graph.inputs) {
    const Value& value = model.graph.value(v);
    out.push_back({value.name, value.dtype(), evaluate(value.shape(), model.bindings)});
  }
  return out;
}

std::map<std::string, int> LoadedModel::operators() const {
  std::map<std::string, int> out;
  for (NodeId id : state_->model.graph.order()) ++out[std::string(state_->model.graph.node(id).op->name)];
  return out;
}

int64_t LoadedModel::parameters() const {
  int64_t total = 0;
  const Graph& graph = state_->model.graph;
  for (int v = 0; v < graph.value_count(); ++v) {
    const Tensor* constant = graph.constant(v);
    if (constant && is_float(constant->dtype())) total += constant->elements();
  }
  return total;
}

const std::map<std::string, Tensor>& LoadedModel::feeds() const { return state_->model.feeds; }

std::vector<Tensor> LoadedModel::reference(int threads) const {
  return run_reference_graph(state_->model.graph, state_->model.feeds, threads);
}

void LoadedModel::save(const std::string& path) const { export_onnx(state_->model.graph, path); }

OptimizedModel optimize(const LoadedModel& model, const OptimizeOptions& options) {
  auto state = std::make_shared<OptimizedModel::State>();
  state->pipeline = parse_pipeline(options.passes, options.disabled);
  const Model& source = model.state().model;
  state->graph = source.graph;
  state->bindings = source.bindings;
  state->source.path = source.path;
  state->source.value_inputs = source.value_inputs;
  state->source.bindings = source.bindings;
  for (const std::string& input : source.value_inputs) state->source.feeds[input] = source.feeds.at(input);
  if (source.saved && source.saved->optimized && options.passes == "all" && options.disabled.empty()) {
    for (const SavedPlan::Packed& packed : source.saved->packed) state->store.put(packed.key, packed.tensor);
    state->stands_packed = !source.saved->packed.empty();
    state->rewrites = rewrites_of(source.saved->decisions);
    return OptimizedModel(std::move(state));
  }
  Decisions decisions;
  run_passes(state->graph, state->pipeline, decisions);
  state->rewrites = rewrites_of(decisions.all);
  return OptimizedModel(std::move(state));
}

std::vector<Rewrite> rewrites_of(const std::vector<Decision>& decisions) {
  std::vector<Rewrite> out;
  for (const Decision& d : decisions) {
    out.push_back(
        {d.pass, d.nodes, d.action == Action::kApplied, d.reason_code, d.reason, d.bytes_saved, d.launches_saved});
  }
  return out;
}

const std::vector<Rewrite>& OptimizedModel::rewrites() const { return state_->rewrites; }
std::string OptimizedModel::text() const { return state_->graph.text(); }
void OptimizedModel::save(const std::string& path) const {
  if (!path.ends_with(".ridge")) return export_onnx(state_->graph, path);
  CompileOptions options;
  options.pipeline = state_->pipeline;
  options.plan.ceilings = cached_ceilings();
  save_plan(path, state_->source.path, state_->source, state_->graph, {}, options);
}

PlannedModel plan(const OptimizedModel& model, const PlanningOptions& options, const Context& context) {
  OptimizedModel::State& state = model.state();
  const std::lock_guard lock(state.mutex);
  PlanOptions planning;
  planning.threads = context.threads();
  planning.bindings = state.bindings;
  const Bindings dims(options.dims.begin(), options.dims.end());
  check_dims(state.graph, dims);
  for (const auto& [name, extent] : dims) planning.bindings[name] = extent;
  std::string key = fmt::format("{} {} {} {} {}", context.threads(), context.measured(), options.reference_only,
                                options.repack, options.deterministic);
  for (const auto& [name, extent] : planning.bindings) key += fmt::format(" {}={}", name, extent);
  for (const auto& [node, kernel] : options.kernels) key += fmt::format(" {}:{}", node, kernel);
  for (auto it = state.plans.begin(); it != state.plans.end(); ++it) {
    if (it->first != key) continue;
    state.plans.splice(state.plans.begin(), state.plans, it);
    return PlannedModel(state.plans.front().second);
  }
  planning.forced = options.kernels;
  planning.reference_only = options.reference_only;
  planning.deterministic = options.deterministic;
  planning.ceilings = context.measured() ? &context.state().ceilings : nullptr;
  planning.keep_packings = (state.stands_packed || !state.plans.empty()) && !options.repack &&
                           !options.reference_only && !options.deterministic;
  planning = plan_options_for(state.pipeline, planning);
  auto planned = std::make_shared<PlannedModel::State>();
  planned->plan = std::make_shared<const Plan>(make_plan(state.graph, planning, state.store));
  state.plans.emplace_front(std::move(key), planned);
  if (state.plans.size() > OptimizedModel::State::kMostPlans) state.plans.pop_back();
  return PlannedModel(std::move(planned));
}

std::vector<TensorInfo> PlannedModel::inputs() const { return infos_of(state_->plan->inputs); }
std::vector<TensorInfo> PlannedModel::outputs() const { return infos_of(state_->plan->outputs); }
int64_t PlannedModel::peak_bytes() const { return state_->plan->peak_bytes(); }
int64_t PlannedModel::constant_bytes() const { return state_->plan->constant_bytes(); }
int64_t PlannedModel::arena_bytes() const { return state_->plan->arena_bytes; }
std::string PlannedModel::text() const { return state_->plan->text(); }

PlannedStep planned_step(const Step& step) {
  PlannedStep out;
  out.name = step.name;
  out.origin = step.origin;
  out.kernel = std::string(step.call.kernel->name);
  out.problem = step.call.problem.text();
  for (const Candidate& c : step.choice.candidates) {
    if (!c.support.ok) out.refused.push_back(fmt::format("{}: {}", c.kernel->name, c.support.reason));
  }
  out.flops = step.cost.flops;
  out.bytes = step.cost.bytes();
  out.predicted_us = step.predicted_ns / 1e3;
  out.floor_us = step.floor_ns / 1e3;
  out.bound = step.bound;
  return out;
}

std::vector<PlannedStep> PlannedModel::steps() const {
  std::vector<PlannedStep> out;
  for (const Step& step : state_->plan->steps) out.push_back(planned_step(step));
  return out;
}

struct Run::State {
  Executor executor;
};

Run::Run(const PlannedModel& plan) : state_(std::make_unique<State>(State{Executor(plan.state().plan)})) {}
Run::Run(Run&&) noexcept = default;
Run& Run::operator=(Run&&) noexcept = default;
Run::~Run() = default;

void Run::operator()(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) {
  const Plan& plan = state_->executor.plan();
  if (inputs.size() != plan.inputs.size() || outputs.size() != plan.outputs.size()) {
    fail(ErrorCode::kBadInput, "{} inputs and {} outputs were given; the plan has {} and {}", inputs.size(),
         outputs.size(), plan.inputs.size(), plan.outputs.size());
  }
  state_->executor.run(inputs, outputs);
}

std::map<std::string, Tensor> Run::operator()(const std::map<std::string, Tensor>& inputs) {
  const Plan& plan = state_->executor.plan();
  std::vector<const void*> in;
  for (const PlanTensor& t : plan.inputs) {
    const auto it = inputs.find(t.name);
    if (it == inputs.end()) fail(ErrorCode::kBadInput, "the input '{}' was not given", t.name);
    const Tensor& given = it->second;
    if (given.dtype() != t.dtype || given.shape() != t.shape) {
      fail(ErrorCode::kBadInput, "the input '{}' must be {}{}, but is {}{}", t.name, name(t.dtype), text(t.shape),
           name(given.dtype()), text(given.shape()));
    }
    in.push_back(given.data());
  }
  std::map<std::string, Tensor> results;
  std::vector<void*> out;
  for (const PlanTensor& t : plan.outputs) {
    Tensor tensor(t.dtype, t.shape);
    out.push_back(tensor.data());
    results[t.name] = std::move(tensor);
  }
  state_->executor.run(in, out);
  return results;
}

}  // namespace ridgeline
