// ridgeline optimize: the ladder.
#include "cli/budget.h"
#include "cli/common.h"
#include "cli/precision_options.h"
#include "core/words.h"
#include "formats/onnx/export.h"
#include "session/ladder.h"
#include "session/ladder_report.h"
#include "session/saved_plan.h"
#include "session/strategy.h"
#include "session/throughput.h"
#include "tune/probes.h"

namespace ridgeline::cli {
namespace {

struct Arguments {
  ModelArguments model;
  std::string output;
  std::vector<std::string> disabled;
  double seconds = 3;
  std::string budget;  // --mem-budget
  std::string objective = "latency";
  std::string strategy = "greedy";
  std::string precision = "f32";
  PrecisionArguments search;
};

// The last line of the ladder for a machine that serves requests without end: a copy of the plan on each core.
void add_throughput(const Ladder& ladder, const Model& model, const Ceilings& ceilings, double seconds, Json& document,
                    std::string& text) {
  const Throughput one = measure_throughput(ladder.final.plan, model.feeds, 1, seconds / 2);
  const Throughput all = measure_throughput(ladder.final.plan, model.feeds, ceilings.cores, seconds / 2);
  const double runs = ladder.stages.back().samples.median() / 1e9;
  const double items = ladder.stages.back().items_per_s * runs;
  document["throughput"] = {{"instances", all.instances},
                            {"threads_each", all.threads_each},
                            {"runs_per_s", all.runs_per_s()},
                            {"items_per_s", all.runs_per_s() * items},
                            {"one_instance_items_per_s", one.runs_per_s() * items}};
  text += fmt::format("\nthroughput: {} instances of {} thread{} each give {:.1f} items/s together, one alone {:.1f}\n",
                      all.instances, all.threads_each, all.threads_each == 1 ? "" : "s", all.runs_per_s() * items,
                      one.runs_per_s() * items);
}

/// Passes that were asked for by name may make operators that ONNX lacks (of 8-bit weights): told before minutes of
/// measuring. The other passes make none.
void check_writable(const Model& model, const LadderOptions& options, const Arguments& arguments) {
  if (!arguments.output.ends_with(".onnx") || options.lossy.empty()) return;
  PipelineOptions pipeline = parse_pipeline("all", options.disabled);
  pipeline.lossy = options.lossy;
  pipeline.only_nodes = options.only_nodes;
  Graph graph = model.graph;
  Decisions decisions;
  run_passes(graph, pipeline, decisions);
  const std::string node = node_without_onnx_form(graph);
  if (node.empty()) return;
  fail(ErrorCode::kUnsupported, "-o {}: {} of the lower precision has no form in ONNX: leave out -o{}",
       arguments.output, node, arguments.precision == "int8" ? ", or ask for --precision bf16" : "");
}

void save(const Model& model, const Ladder& ladder, const LadderOptions& options, const Arguments& arguments) {
  CompileOptions compile_options;
  compile_options.pipeline = parse_pipeline("all", options.disabled);
  compile_options.pipeline.lossy = options.lossy;
  compile_options.pipeline.only_nodes = options.only_nodes;
  compile_options.pipeline.undone_nodes = options.undone_nodes;
  compile_options.plan.threads = options.threads;
  compile_options.plan.ceilings = options.ceilings;
  compile_options.plan.ns_per_byte = options.ns_per_byte;
  save_plan(arguments.output, arguments.model.path, model, ladder.final.graph, ladder.decisions, compile_options);
}

void optimize(const Common& common, const Arguments& arguments) {
  const int64_t at_start = resident_bytes();
  const bool saves_plan = arguments.output.ends_with(".ridge");
  if (!arguments.output.empty() && !saves_plan && !arguments.output.ends_with(".onnx"))
    fail(ErrorCode::kUsage, "-o {}: a model is written as .onnx, a plan as .ridge", arguments.output);
  if (saves_plan && common.cuda()) later("a saved plan (.ridge) of a GPU");
  parse_pipeline("all", arguments.disabled);  // names and files are checked before any work
  if (!arguments.output.empty()) check_folder_of(arguments.output);
  auto say = [&](const std::string& line) { common.progress("ridgeline: " + line); };
  Model model = arguments.model.load(common);
  if (common.cuda() &&
      (arguments.objective == "throughput" || arguments.search.asked() || arguments.strategy != "greedy"))
    later("optimize --device cuda with --objective throughput, --max-error, --scales or --strategy");
  const bool throughput = arguments.objective == "throughput";
  const Ceilings ceilings = throughput ? ceilings_when_shared(device_ceilings(common)) : device_ceilings(common);
  LadderOptions options;
  // One thread is also the smallest plan: each has a workspace of its own.
  const bool one_thread = throughput || arguments.objective == "memory";
  options.threads = one_thread && common.threads == 0 ? 1 : common.threads;
  if (arguments.objective == "memory") options.ns_per_byte = memory_prices().back();
  if (!arguments.budget.empty()) {
    CompileOptions limited;
    limited.pipeline = parse_pipeline("all", arguments.disabled);
    ask_precision(limited.pipeline, arguments.precision);
    limited.plan.threads = options.threads;
    limited.plan.device = device_kind(common);
    limited.plan.ceilings = &ceilings;
    set_budget(limited, arguments.budget, at_start);
    naming_file(arguments.model.path,
                [&] { options.ns_per_byte = std::max(options.ns_per_byte, price_within(model, limited)); });
  }
  options.device = device_kind(common);
  options.disabled = arguments.disabled;
  PipelineOptions asked;
  ask_precision(asked, arguments.precision);
  std::optional<PrecisionPlan> lowered;
  if (arguments.search.asked() || !arguments.search.calibrate.empty()) {
    if (arguments.precision != "f32" || !arguments.disabled.empty() || !arguments.budget.empty() ||
        arguments.strategy != "greedy")
      fail(ErrorCode::kUsage,
           "--max-error and --scales choose the precisions themselves, of the whole pipeline: no --precision, "
           "--disable-pass, --mem-budget or --strategy beside them");
    CompileOptions whole;
    whole.plan.threads = options.threads;
    whole.plan.ceilings = &ceilings;
    naming_file(arguments.model.path,
                [&] { lowered = precision_plan(common, arguments.search, arguments.model, model, whole); });
    apply_precision(lowered.value(), asked);
    options.only_nodes = asked.only_nodes;
  }
  options.lossy = asked.lossy;
  naming_file(arguments.model.path, [&] { check_writable(model, options, arguments); });
  options.seconds = arguments.seconds;
  options.ceilings = &ceilings;
  options.progress = say;
  const Strategy strategy = parse_strategy(arguments.strategy);
  StrategyResult fusions;
  if (strategy != Strategy::kGreedy) {
    CompileOptions whole;
    whole.pipeline = parse_pipeline("all", arguments.disabled);
    ask_precision(whole.pipeline, arguments.precision);
    whole.plan.threads = options.threads;
    whole.plan.ceilings = &ceilings;
    whole.plan.ns_per_byte = options.ns_per_byte;
    naming_file(arguments.model.path, [&] { fusions = choose_fusions(model, whole, strategy, say); });
    options.undone_nodes = fusions.undone;
  }
  Ladder ladder;
  naming_file(arguments.model.path, [&] { ladder = build_ladder(model, options); });
  if (saves_plan)
    save(model, ladder, options, arguments);
  else if (!arguments.output.empty())
    export_onnx(ladder.final.graph, arguments.output);
  Json document = ladder_json(model, ladder, ceilings);
  std::string text = ladder_text(model, ladder, ceilings);
  if (lowered) {
    document["precision"] = precision_json(*lowered);
    text += "\n" + precision_text(*lowered);
  }
  document["objective"] = arguments.objective;
  document["ns_per_byte"] = options.ns_per_byte;
  document["strategy"] = {{"name", arguments.strategy}};
  if (strategy != Strategy::kGreedy) {
    document["strategy"] = {{"name", arguments.strategy},
                            {"rewrites", fusions.rewrites},
                            {"plans_compared", fusions.plans},
                            {"greedy_predicted_ms", fusions.greedy_ns / 1e6},
                            {"predicted_ms", fusions.chosen_ns / 1e6},
                            {"left_out", fusions.undone}};
    text += fmt::format("\nstrategy {}: of {} fusions {} are left out; predicted {:.3f} ms, with all of them {:.3f}\n",
                        arguments.strategy, fusions.rewrites, fusions.undone.size(), fusions.chosen_ns / 1e6,
                        fusions.greedy_ns / 1e6);
    for (const std::string& rewrite : fusions.undone) text += "  " + one_line(rewrite) + "\n";
  }
  if (options.ns_per_byte > 0)
    text += fmt::format("\nkernels were chosen with a price on memory: {:.2g} ns a byte ({})\n", options.ns_per_byte,
                        arguments.objective == "memory" ? "--objective memory" : "--mem-budget " + arguments.budget);
  if (throughput) add_throughput(ladder, model, ceilings, arguments.seconds, document, text);
  common.show(document, text);
}

}  // namespace

void add_optimize(CLI::App& app, Common& common) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      add_command(app, common, "optimize", "Optimize a model stage by stage, measured, verified and explained",
                  [&common, arguments] { optimize(common, *arguments); });
  arguments->model.add_to(command);
  command->add_option(
      "-o,--output", arguments->output,
      "Write the optimized model: as standard ONNX (.onnx), or with its packed weights as a plan that starts at once "
      "(.ridge)");
  command->add_option("--disable-pass", arguments->disabled, "Switch one pass off (may be repeated)");
  command
      ->add_option("--time", arguments->seconds, "Seconds of measurement of all stages together, at least (default 3)")
      ->check(seconds_to_measure());
  command->add_option("--mem-budget", arguments->budget,
                      "Most memory that a process which runs the plan may take (150MB, 143MiB)");
  command
      ->add_option("--objective", arguments->objective,
                   "latency; throughput: one thread a plan, its copies share the machine; memory: the smallest plan")
      ->check(CLI::IsMember({"latency", "throughput", "memory"}));
  command
      ->add_option("--strategy", arguments->strategy,
                   "Which legal fusions are applied: greedy (all), cost (those that the cost model wants), exhaustive "
                   "(the best of all subsets, for small graphs)")
      ->check(CLI::IsMember({"greedy", "cost", "exhaustive"}));
  add_precision(command, arguments->precision);
  arguments->search.add_to(command);
}

}  // namespace ridgeline::cli
