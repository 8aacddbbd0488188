// ridgeline profile: where the time goes, step by step, in the model's own node names.
#include <fstream>

#include "cli/common.h"
#include "cli/precision_options.h"
#include "plan/control.h"
#include "session/ladder.h"
#include "session/problem_words.h"
#include "tune/probes.h"

namespace ridgeline::cli {
namespace {

struct Arguments {
  ModelArguments model;
  std::string trace, passes = "all", precision = "f32";
  std::vector<std::string> disabled;
  double seconds = 2;
  PrecisionArguments search;
};

void write_trace(const std::string& file, const Plan& plan, const std::vector<Executor::StepTime>& times) {
  Json events = Json::array();
  for (size_t s = 0; s < times.size(); ++s) {
    const Step& step = plan.steps[s];
    events.push_back({{"name", step.name},
                      {"cat", std::string(step.call.kernel->name)},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", 1},
                      {"ts", double(times[s].start_ns - times[0].start_ns) / 1e3},
                      {"dur", double(times[s].end_ns - times[s].start_ns) / 1e3},
                      {"args", {{"problem", step.call.problem.text()}, {"nodes", step.origin}}}});
  }
  std::ofstream out(file);
  out << Json{{"traceEvents", events}}.dump(1, ' ', false, Json::error_handler_t::replace);
  if (!out.flush()) fail(ErrorCode::kResource, "cannot write {}", file);
}

/// Steps inside of an If, Loop or Scan, below it: their share of its time, summed over iterations.
void add_bodies(const Step& step, const std::string& indent, int64_t runs, Json& entry, std::string& text) {
  for (const PlannedBody& body : planned_bodies(step)) {
    if (!body.plan || body.times->runs == 0) continue;
    Json steps = Json::array();
    const double iterations = double(body.times->runs) / double(std::max<int64_t>(runs, 1));
    text += fmt::format("{:>9} {}{}: run {:.4g} times\n", "", indent, body.label, iterations);
    for (size_t s = 0; s < body.plan->steps.size(); ++s) {
      const Step& inner = body.plan->steps[s];
      const double time_us = double(body.times->ns[s]) / 1e3 / double(std::max<int64_t>(runs, 1));
      const std::string problem = problem_words(inner.call.problem);
      steps.push_back({{"nodes", inner.origin.empty() ? std::vector<std::string>{inner.name} : inner.origin},
                       {"op", std::string(inner.call.problem.op->name)},
                       {"problem", problem},
                       {"kernel", std::string(inner.call.kernel->name)},
                       {"time_us", time_us}});
      text +=
          fmt::format("{:>9.1f} {}  {:<28} {}  [{}]\n", time_us, indent, inner.call.kernel->name, problem, inner.name);
      add_bodies(inner, indent + "  ", runs, steps.back(), text);
    }
    entry["bodies"].push_back({{"body", body.label}, {"runs", iterations}, {"steps", steps}});
  }
}

void profile(const Common& common, const Arguments& arguments) {
  if (!arguments.trace.empty()) check_folder_of(arguments.trace);
  Model model = arguments.model.load(common);
  const Ceilings ceilings = device_ceilings(common);
  CompileOptions options;
  options.pipeline = parse_pipeline(arguments.passes, arguments.disabled);
  ask_precision(options.pipeline, arguments.precision);
  options.plan.threads = common.threads;
  options.plan.device = device_kind(common);
  options.plan.ceilings = &ceilings;
  const std::optional<PrecisionPlan> lowered =
      searched_precision(common, arguments.search, arguments.model, model, arguments.precision, options);
  ConstantStore store;
  Compiled compiled;
  naming_file(arguments.model.path, [&] { compiled = compile(model, options, store); });
  common.notes.insert(common.notes.end(), compiled.notes.begin(), compiled.notes.end());
  if (lowered)
    require_lowered(*lowered, compiled.decisions,
                    arguments.search.scales.empty() ? "--max-error" : arguments.search.scales);
  const Plan& plan = *compiled.plan;
  Runner runner(compiled.plan, model.feeds);
  naming_file(arguments.model.path, [&] { runner.run(); });
  // Plain and profiled runs in turn: their difference is what profiling costs. What is not in kernels is gap (between
  // two steps) or dispatch (before the first and after the last: binding the caller's buffers), told apart run by run.
  std::vector<Executor::StepTime> stamps(plan.steps.size());
  std::vector<Samples> times(plan.steps.size()), waits(plan.steps.size());
  Samples kernels, gaps, dispatches;
  TimingOptions timing;
  timing.min_seconds = arguments.seconds;
  timing.min_samples = 7;
  timing.min_sample_ns = 0;
  int64_t profiled = 0;
  const std::vector<Samples> totals = measure_interleaved(
      {[&] { runner.run(); },
       [&] {
         const BodyProfiling bodies;
         ++profiled;
         const int64_t start = now_ns();
         runner.run_profiled(stamps);
         const double whole = double(now_ns() - start);
         double inside = 0;
         for (size_t s = 0; s < stamps.size(); ++s) {
           times[s].add(double(stamps[s].end_ns - stamps[s].start_ns));
           waits[s].add(double(stamps[s].wait_ns));
           inside += double(stamps[s].end_ns - stamps[s].start_ns);
         }
         kernels.add(inside);
         const double steps = stamps.empty() ? 0 : double(stamps.back().end_ns - stamps.front().start_ns);
         gaps.add(steps - inside);
         dispatches.add(whole - steps);
       }},
      timing);
  const double total_us = totals[1].median() / 1e3, kernel_us = kernels.median() / 1e3, gap_us = gaps.median() / 1e3;
  const double dispatch_us = dispatches.median() / 1e3;
  const double overhead = median_ratio(totals[1], totals[0]) - 1;

  Json steps = Json::array();
  std::string text =
      fmt::format("{:>9} {:>6} {:>6} {:<8} {:<28} {}\n", "time us", "share", "roof", "bound", "kernel", "problem");
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    const Step& step = plan.steps[s];
    const double time_us = times[s].median() / 1e3;
    const Floor floor = step_floor(step.call.problem, step.cost, ceilings, plan.threads);
    const double share = time_us > 0 ? step.floor_ns / 1e3 / time_us : 0;
    const std::string problem = problem_words(step.call.problem);
    steps.push_back({{"nodes", step.origin.empty() ? std::vector<std::string>{step.name} : step.origin},
                     {"op", std::string(step.call.problem.op->name)},
                     {"problem", problem},
                     {"kernel", std::string(step.call.kernel->name)},
                     {"tile", tile_words(step.call.tile)},
                     {"chosen_by", step.choice.chosen_by},
                     {"time_us", time_us},
                     {"wait_us", waits[s].median() / 1e3},
                     {"flops", step.cost.flops},
                     {"bytes", step.cost.bytes()},
                     {"intensity", step.cost.bytes() ? double(step.cost.flops) / double(step.cost.bytes()) : 0},
                     {"bound", step.bound},
                     {"roof_share", share},
                     {"compute_share", time_us > 0 ? floor.compute_ns / 1e3 / time_us : 0},
                     {"bandwidth_share", time_us > 0 ? floor.memory_ns / 1e3 / time_us : 0}});
    text += fmt::format("{:>9.1f} {:>5.1f}% {:>5.0f}% {:<8} {:<28} {}  [{}]\n", time_us,
                        total_us > 0 ? 100 * time_us / total_us : 0, share * 100, step.bound, step.call.kernel->name,
                        problem, step.name);
    add_bodies(step, "  ", profiled, steps.back(), text);
  }
  text += fmt::format(
      "total {:.1f} us: kernels {:.1f} ({:.1f} %), gaps {:.1f}, dispatch {:.1f}; profiling costs {:.2f} % ({} runs)\n",
      total_us, kernel_us, 100 * kernel_us / std::max(total_us, 1e-9), gap_us, dispatch_us, overhead * 100,
      kernels.count());
  if (!arguments.trace.empty()) write_trace(arguments.trace, plan, stamps);
  Json document = {{"steps", steps},
                   {"total_us", total_us},
                   {"total_p10_us", totals[1].p10() / 1e3},
                   {"total_p90_us", totals[1].p90() / 1e3},
                   {"kernel_us", kernel_us},
                   {"dispatch_us", dispatch_us},
                   {"gap_us", gap_us},
                   {"profiling_overhead", overhead},
                   {"samples", kernels.count()}};
  if (lowered) {
    document["precision"] = precision_json(*lowered);
    text += precision_text(*lowered);
  }
  common.show(document, text);
}

}  // namespace

void add_profile(CLI::App& app, Common& common) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = add_command(app, common, "profile", "Time every step of a model, beside its roof",
                                  [&common, arguments] { profile(common, *arguments); });
  arguments->model.add_to(command);
  command->add_option("--trace", arguments->trace,
                      "Write a Chrome trace of the last run (opens in chrome://tracing or Perfetto)");
  command->add_option("--passes", arguments->passes,
                      "all, none, or names separated by commas (see `ridgeline passes`)");
  command->add_option("--disable-pass", arguments->disabled, "Switch one pass off (may be repeated)");
  add_precision(command, arguments->precision);
  arguments->search.add_to(command);
  command->add_option("--time", arguments->seconds, "Seconds of measurement (default 2)")->check(seconds_to_measure());
}

}  // namespace ridgeline::cli
