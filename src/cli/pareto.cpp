// ridgeline pareto: plans that trade time for memory.
#include "session/pareto.h"

#include <cmath>

#include "cli/budget.h"
#include "cli/common.h"

namespace ridgeline::cli {
namespace {

struct Arguments {
  ModelArguments model;
  std::vector<std::string> disabled;
  double seconds = 5;
};

void pareto(const Common& common, const Arguments& arguments) {
  const int64_t process = resident_bytes() + kProgramBytes;
  ParetoOptions options;
  options.compile.pipeline = parse_pipeline("all", arguments.disabled);
  options.compile.plan.threads = common.threads;
  options.seconds = arguments.seconds;
  options.progress = [&](const std::string& line) { common.progress("ridgeline: " + line); };
  Model model = arguments.model.load(common);
  Pareto found;
  naming_file(arguments.model.path, [&] { found = pareto_plans(model, options); });

  Json document;
  document["tried"] = found.tried;
  Json plans = Json::array();
  std::string text = fmt::format(
      "{} of {} plans, least time first: no other takes less time and less memory. Peak: of a process that runs it.\n\n"
      "{:>10} {:>8} {:>8} {:>8} {:>10} {:>10} {:>10} {:>8} {:>11}\n",
      found.plans.size(), found.tried, "median ms", "p10", "p90", "paired", "peak", "weights", "arena", "ns/byte",
      "budget");
  for (const ParetoPlan& p : found.plans) {
    const int64_t peak = process + p.plan_bytes;
    plans.push_back({{"latency_ms", p.samples.median() / 1e6},
                     {"slower_than_first", median_ratio(p.samples, found.plans[0].samples)},
                     {"p10_ms", p.samples.p10() / 1e6},
                     {"p90_ms", p.samples.p90() / 1e6},
                     {"samples", p.samples.count()},
                     {"peak_bytes", peak},
                     {"mem_budget_bytes", budget_for(peak)},
                     {"weight_bytes", p.plan->constant_bytes()},
                     {"arena_bytes", p.plan->arena_bytes},
                     {"ns_per_byte", p.ns_per_byte},
                     {"changes", p.changes}});
    text += fmt::format(
        "{:>10.3f} {:>8.3f} {:>8.3f} {:>7.3f}x {:>6.1f} MiB {:>6.1f} MiB {:>6.1f} MiB {:>8.2g} {:>9.0f}MB\n",
        p.samples.median() / 1e6, p.samples.p10() / 1e6, p.samples.p90() / 1e6,
        median_ratio(p.samples, found.plans[0].samples), double(peak) / 1048576,
        double(p.plan->constant_bytes()) / 1048576, double(p.plan->arena_bytes) / 1048576, p.ns_per_byte,
        std::ceil(double(budget_for(peak)) / 1e6));
  }
  document["plans"] = plans;
  for (size_t i = 1; i < found.plans.size(); ++i) {
    const ParetoPlan& p = found.plans[i];
    text += fmt::format("\n{:.1f} ms against the fastest, {} steps run otherwise:\n", p.samples.median() / 1e6,
                        p.changes.size());
    for (size_t c = 0; c < p.changes.size() && c < 5; ++c) text += "  " + p.changes[c] + "\n";
    if (p.changes.size() > 5) text += fmt::format("  and {} more (--json lists all)\n", p.changes.size() - 5);
  }
  if (found.plans.size() > 1)
    text +=
        "\nbudget: what `ridgeline run MODEL --mem-budget` takes to run such a plan (its peak and what a wrong "
        "prediction "
        "may be short of).\n";
  common.show(document, text);
}

}  // namespace

void add_pareto(CLI::App& app, Common& common) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      add_command(app, common, "pareto", "Plans that trade time for memory: none is beaten in both by another",
                  [&common, arguments] { pareto(common, *arguments); });
  arguments->model.add_to(command);
  command->add_option("--disable-pass", arguments->disabled, "Switch one pass off (may be repeated)");
  command
      ->add_option("--time", arguments->seconds, "Seconds of measurement of all plans together, at least (default 5)")
      ->check(seconds_to_measure());
}

}  // namespace ridgeline::cli
