#include "session/pareto.h"

#include <algorithm>

#include "session/ladder_judge.h"

namespace ridgeline {
namespace {

std::string kernel_and_tile(const Step& step) {
  std::string text(step.call.kernel->name);
  const auto& size = step.call.tile.size;
  int used = int(size.size());
  while (used > 0 && size[size_t(used) - 1] == 0) --used;
  for (int i = 0; i < used; ++i) text += fmt::format("{}{}", i ? "," : " tile ", size[size_t(i)]);
  return text;
}

int64_t constants_of(const Plan& plan, const Step& step) {
  int64_t bytes = 0;
  for (const Place& place : step.inputs)
    if (place.kind == Place::Kind::kConstant) bytes += plan.constants[size_t(place.index)].bytes();
  return bytes;
}

// What stands at the same place of both plans and is run otherwise.
std::vector<std::string> changes_from(const Plan& fastest, const Plan& plan) {
  std::vector<std::string> changes;
  for (const Step& step : plan.steps) {
    const auto same = std::find_if(fastest.steps.begin(), fastest.steps.end(), [&](const Step& other) {
      return other.name == step.name && other.kind == step.kind;
    });
    if (same == fastest.steps.end()) {
      changes.push_back(fmt::format("{}: {} added", step.name, step.call.kernel->name));
      continue;
    }
    if (same->call.kernel == step.call.kernel && same->call.tile == step.call.tile) continue;
    const int64_t bytes = constants_of(plan, step) + step.call.workspace_bytes - constants_of(fastest, *same) -
                          same->call.workspace_bytes;
    changes.push_back(fmt::format("{}: {} -> {}, {:+.2f} MB", step.name, kernel_and_tile(*same), kernel_and_tile(step),
                                  double(bytes) / 1e6));
  }
  return changes;
}

}  // namespace

Pareto pareto_plans(Model& model, const ParetoOptions& options) {
  auto say = [&](const std::string& line) {
    if (options.progress) options.progress(line);
  };
  ConstantStore store;
  CompileOptions compile_options = options.compile;
  Compiled fastest = compile(model, compile_options, store);
  PlanOptions plan_options = plan_options_for(compile_options.pipeline, compile_options.plan);
  plan_options.bindings = model.bindings;
  if (!plan_options.ceilings) plan_options.ceilings = cached_ceilings();

  std::vector<ParetoPlan> plans;
  for (const double price : memory_prices()) {
    plan_options.ns_per_byte = price;
    ParetoPlan next;
    next.ns_per_byte = price;
    next.plan = price == 0 ? fastest.plan : std::make_shared<const Plan>(make_plan(fastest.graph, plan_options, store));
    if (!plans.empty() && same_plan(*plans.back().plan, *next.plan)) continue;
    next.plan_bytes = dry_plan(fastest.graph, plan_options, price).peak_bytes_with_packing();
    plans.push_back(std::move(next));
  }
  say(fmt::format("measuring {} plan{}, interleaved", plans.size(), plans.size() == 1 ? "" : "s"));
  std::vector<Runner> runners;
  runners.reserve(plans.size());
  for (const ParetoPlan& p : plans) runners.emplace_back(p.plan, model.feeds);
  std::vector<TimedFunction> functions;
  for (Runner& runner : runners) {
    runner.run();
    functions.push_back([&runner] { runner.run(); });
  }
  TimingOptions timing;
  timing.min_seconds = options.seconds;
  timing.min_samples = 15;
  std::vector<Samples> samples = measure_interleaved(functions, timing);
  for (size_t i = 0; i < plans.size(); ++i) plans[i].samples = std::move(samples[i]);

  Pareto pareto;
  pareto.tried = int(plans.size());
  // By the ratios that are printed, each of paired runs against the first plan: what disturbs one round disturbs all
  // plans in it, and ratios of all pairs need not agree with each other.
  pareto.plans = std::move(plans);
  for (bool dropped = true; dropped;) {
    std::sort(pareto.plans.begin(), pareto.plans.end(),
              [](const ParetoPlan& a, const ParetoPlan& b) { return a.plan_bytes > b.plan_bytes; });
    std::vector<double> time;
    for (const ParetoPlan& p : pareto.plans) time.push_back(median_ratio(p.samples, pareto.plans[0].samples));
    dropped = false;
    // Smaller ones stand behind: a plan is beaten by any of those that is as fast.
    for (size_t i = 0; i < pareto.plans.size() && !dropped; ++i) {
      const auto least = std::min_element(time.begin() + ptrdiff_t(i) + 1, time.end());
      if (least == time.end() || *least > time[i]) continue;
      pareto.plans.erase(pareto.plans.begin() + ptrdiff_t(i));
      dropped = true;
    }
  }
  for (ParetoPlan& p : pareto.plans) p.changes = changes_from(*pareto.plans[0].plan, *p.plan);
  return pareto;
}

}  // namespace ridgeline
