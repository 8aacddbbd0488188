// ridgeline run: a model on given or made-up inputs; outputs as .npy, or its latency and memory.
#include <algorithm>
#include <filesystem>
#include <set>

#include "cli/budget.h"
#include "cli/common.h"
#include "cli/precision_options.h"
#include "core/sha256.h"
#include "core/words.h"
#include "formats/npy.h"
#include "machine/energy.h"
#include "session/sessions.h"
#include "tune/timing.h"

namespace ridgeline::cli {
namespace {

struct Arguments {
  ModelArguments model;
  std::string output_dir;
  double seconds = 0;
  std::string passes = "all";
  std::vector<std::string> disabled;
  std::string precision = "f32";
  std::string budget;  // --mem-budget
  PrecisionArguments search;
  bool deterministic = false;
  int sessions = 0;
};

Json latency_json(const Samples& s) {
  return {{"median", s.median() / 1e6},
          {"p10", s.p10() / 1e6},
          {"p90", s.p90() / 1e6},
          {"p99", s.p99() / 1e6},
          {"samples", s.count()}};
}

// A file for each output: / becomes _, control characters \x1b. Names that are taken as they are come first; one that
// another has already gets a number.
std::vector<std::string> file_names(const std::vector<std::string>& names) {
  std::vector<std::string> plain, files(names.size());
  for (const std::string& name : names) {
    std::string file = one_line(name);
    std::replace(file.begin(), file.end(), '/', '_');
    plain.push_back(std::move(file));
  }
  std::set<std::string> taken;
  for (const bool changed : {false, true}) {
    for (size_t i = 0; i < names.size(); ++i) {
      if ((plain[i] != names[i]) != changed) continue;
      files[i] = plain[i];
      for (int n = 2; !taken.insert(files[i]).second; ++n) files[i] = fmt::format("{}_{}", plain[i], n);
      files[i] += ".npy";
    }
  }
  return files;
}

// Another plan of the same graph, without what --deterministic asks for, by turns with it: what that costs.
void add_cost_of_determinism(const PlanOptions& planned, Compiled& compiled, ConstantStore& store, const Feeds& feeds,
                             Runner& runner, double seconds, Json& document, std::string& text) {
  PlanOptions free = planned;
  free.deterministic = false;
  free.ceilings = cached_ceilings();
  Runner other(std::make_shared<const Plan>(make_plan(compiled.graph, free, store)), feeds);
  TimingOptions timing;
  timing.min_seconds = seconds;
  timing.min_samples = 3;
  const std::vector<Samples> both = measure_interleaved({[&] { runner.run(); }, [&] { other.run(); }}, timing);
  const double ratio = median_ratio(both[0], both[1]);
  document["deterministic"] = {{"lanes", runner.executor().plan().lanes},
                               {"time_ratio", ratio},
                               {"latency_ms", latency_json(both[0])},
                               {"latency_ms_without", latency_json(both[1])}};
  text += fmt::format("deterministic: {:.3f} ms, without {:.3f}; it costs {:+.1f} % (median of pairs)\n",
                      both[0].median() / 1e6, both[1].median() / 1e6, (ratio - 1) * 100);
}

void add_sessions(const std::shared_ptr<const Plan>& plan, const Feeds& feeds, int most, double seconds, Json& document,
                  std::string& text) {
  Json rows = Json::array();
  text += fmt::format("{:<9} {:>10} {:>9} {:>11} {:>9}   of {} threads each, at most\n", "sessions", "runs/s", "of one",
                      "median ms", "p99 ms", plan->threads);
  for (const SessionsRow& row : measure_sessions(plan, feeds, most, seconds)) {
    rows.push_back({{"sessions", row.sessions},
                    {"runs_per_s", row.runs_per_s},
                    {"throughput_ratio", row.ratio},
                    {"latency_ms", latency_json(row.latency)}});
    text += fmt::format("{:<9} {:>10.2f} {:>9.2f} {:>11.3f} {:>9.3f}\n", row.sessions, row.runs_per_s, row.ratio,
                        row.latency.median() / 1e6, row.latency.p99() / 1e6);
  }
  document["sessions"] = rows;
}

void run(const Common& common, const Arguments& arguments) {
  const int64_t at_start = resident_bytes();
  Model model = arguments.model.load(common);
  CompileOptions options;
  options.pipeline = parse_pipeline(arguments.passes, arguments.disabled);
  ask_precision(options.pipeline, arguments.precision);
  options.plan.threads = common.threads;
  options.plan.device = device_kind(common);
  if (common.cuda() && (arguments.sessions > 0 || arguments.deterministic || arguments.search.asked()))
    later("run --device cuda with --sessions, --deterministic, --max-error or --scales");
  options.plan.deterministic = arguments.deterministic;
  if (arguments.sessions > 0 && (arguments.seconds <= 0 || !arguments.budget.empty()))
    fail(ErrorCode::kUsage, "--sessions goes with --time SECONDS, and without --mem-budget");
  const bool compares = arguments.deterministic && arguments.seconds > 0 && arguments.budget.empty();
  options.consume = !compares;  // the other plan packs its own
  set_budget(options, arguments.budget, at_start);
  if (arguments.search.max_error != 0 && !arguments.budget.empty())
    fail(ErrorCode::kUsage,
         "--max-error takes more memory than the plan that it finds: write that with --scales FILE, then give "
         "--mem-budget with --scales FILE");
  const std::optional<PrecisionPlan> lowered =
      searched_precision(common, arguments.search, arguments.model, model, arguments.precision, options);
  ConstantStore store;
  const Feeds feeds = std::move(model.feeds);
  Compiled compiled;
  naming_file(arguments.model.path, [&] { compiled = compile(model, options, store); });
  common.notes.insert(common.notes.end(), compiled.notes.begin(), compiled.notes.end());
  if (lowered)
    require_lowered(*lowered, compiled.decisions,
                    arguments.search.scales.empty() ? "--max-error" : arguments.search.scales);
  Runner runner(compiled.plan, feeds);
  naming_file(arguments.model.path, [&] { runner.run(); });
  if (!common.cuda()) check_budget(arguments.budget);

  Json document;
  std::string text;
  if (arguments.precision != "f32") {
    int64_t lowered = 0, kept = 0;
    for (const Decision& d : compiled.decisions.all)
      if (d.pass == "lower_to_" + arguments.precision) ++(d.action == Action::kApplied ? lowered : kept);
    document["precision"] = {{"asked", arguments.precision}, {"lowered", lowered}, {"refused", kept}};
    text += fmt::format("{} products and convolutions multiply in {}, {} were refused (`ridgeline explain` says why)\n",
                        lowered, arguments.precision, kept);
  }
  if (lowered) {
    document["precision"] = precision_json(*lowered);
    text += precision_text(*lowered);
  }
  Json outputs = Json::array();
  const std::vector<std::string> files = file_names(model.output_names);
  if (!arguments.output_dir.empty()) {
    std::error_code error;
    std::filesystem::create_directories(arguments.output_dir, error);
    if (error) fail(ErrorCode::kResource, "{}: cannot be made: {}", arguments.output_dir, error.message());
  }
  for (size_t i = 0; i < runner.outputs().size(); ++i) {
    const Tensor& t = runner.outputs()[i];
    const std::string name = model.output_names[i];
    outputs.push_back({{"name", name},
                       {"dtype", std::string(ridgeline::name(t.dtype()))},
                       {"shape", t.shape()},
                       {"sha256", sha256(t.data(), size_t(t.bytes()))}});
    text += fmt::format("{:<24} {:<5} {}\n", one_line(name), ridgeline::name(t.dtype()), ridgeline::text(t.shape()));
    if (arguments.output_dir.empty()) continue;
    outputs.back()["file"] = files[i];
    write_npy(t, (std::filesystem::path(arguments.output_dir) / files[i]).string());
  }
  document["outputs"] = outputs;
  if (arguments.seconds > 0) {
    TimingOptions timing;
    timing.min_seconds = arguments.seconds;
    timing.min_samples = 3;
    EnergyMeter energy;
    int64_t runs = 0;
    const Samples samples = common.cuda() ? measure_runners({&runner}, timing).front()
                                          : measure(
                                                [&] {
                                                  runner.run();
                                                  ++runs;
                                                },
                                                timing);
    const std::optional<double> joules = energy.joules();
    document["energy_j_per_run"] = joules && !common.cuda() ? Json(*joules / double(runs)) : Json("not available");
    document["load_ms"] = model.load_ms;
    document["plan_ms"] = compiled.optimize_ms + compiled.plan_ms;
    document["latency_ms"] = latency_json(samples);
    document["peak_rss_bytes"] = most_resident_bytes();
    document["arena_bytes"] = compiled.plan->arena_bytes;
    document["weight_bytes"] = store.bytes();
    // From the plan alone, before anything is measured but the empty process: it can be wrong, and a test compares.
    document["predicted_peak_bytes"] = at_start + kProgramBytes + compiled.plan->peak_bytes_with_packing();
    document["kernels"] = compiled.plan->kernel_count();
    text += fmt::format(
        "latency {:.3f} ms (p10 {:.3f}, p90 {:.3f}, {} runs); load {:.0f} ms, optimize and plan {:.0f} ms; peak {:.1f} "
        "MiB, of which weights {:.1f}, arena {:.1f}\n",
        samples.median() / 1e6, samples.p10() / 1e6, samples.p90() / 1e6, samples.count(), model.load_ms,
        compiled.optimize_ms + compiled.plan_ms, double(most_resident_bytes()) / 1048576,
        double(store.bytes()) / 1048576, double(compiled.plan->arena_bytes) / 1048576);
    if (compares) {
      PlanOptions planned = plan_options_for(options.pipeline, options.plan);
      planned.bindings = model.bindings;
      add_cost_of_determinism(planned, compiled, store, feeds, runner, arguments.seconds, document, text);
    }
    if (arguments.sessions > 0)
      add_sessions(compiled.plan, feeds, arguments.sessions, arguments.seconds, document, text);
  }
  common.show(document, text);
}

}  // namespace

void add_run(CLI::App& app, Common& common) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      add_command(app, common, "run", "Run a model: outputs as .npy files, latency and memory with --time",
                  [&common, arguments] { run(common, *arguments); });
  arguments->model.add_to(command);
  command->add_option("--output-dir", arguments->output_dir, "Write each output as NAME.npy (/ becomes _)");
  command->add_option("--time", arguments->seconds, "Measure latency and memory for so many seconds")
      ->check(seconds_to_measure());
  command->add_option("--passes", arguments->passes,
                      "all, none, or names separated by commas (see `ridgeline passes`)");
  command->add_option("--disable-pass", arguments->disabled, "Switch one pass off (may be repeated)");
  add_precision(command, arguments->precision);
  command->add_option("--mem-budget", arguments->budget,
                      "Most memory that the process may take (150MB, 143MiB): smaller kernels are chosen, or refused");
  arguments->search.add_to(command);
  command->add_flag("--deterministic", arguments->deterministic,
                    "Outputs that are the same to the bit for any number of threads; with --time also what that costs");
  command
      ->add_option("--sessions", arguments->sessions,
                   "With --time: also the throughput of 1 to N sessions at once in this process")
      ->check(whole_number(1, 64));
}

}  // namespace ridgeline::cli
