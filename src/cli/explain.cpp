// ridgeline explain: what each pass and the dispatcher did with each node, and why not something else.
#include <algorithm>
#include <functional>

#include "cli/common.h"
#include "cli/explain_cuda.h"
#include "cli/precision_options.h"
#include "kernels/reference/reference.h"
#include "plan/control.h"
#include "session/described_choice.h"
#include "session/problem_words.h"
#include "teach/ladder.h"
#include "tune/probes.h"

namespace ridgeline::cli {
namespace {

bool concerns(const std::vector<std::string>& nodes, const std::string& node) {
  return node.empty() || std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

// A measurement overrules the estimates, whatever they say.
std::string why_not(const Candidate& c, const Step& step) {
  const bool measured = step.choice.chosen_by == "tuned" || step.choice.chosen_by == "table";
  return fmt::format("estimated at {:.1f} us, the chosen one at {:.1f} us{}", c.estimate_ns / 1e3,
                     step.predicted_ns / 1e3, measured ? ", and that was measured to be faster" : "");
}

void explain(const Common& common, const ModelArguments& arguments, const std::string& node,
             const std::string& precision) {
  Model model = arguments.load(common);
  std::vector<std::string> known;
  const std::function<void(const Graph&)> collect = [&](const Graph& graph) {
    for (const NodeId id : graph.order()) {
      known.push_back(graph.node(id).name);
      for (const std::string_view key : bodies_of(*graph.node(id).op)) collect(body_of(graph.node(id).attributes, key));
    }
  };
  collect(model.graph);
  if (!node.empty() && std::find(known.begin(), known.end(), node) == known.end())
    fail(ErrorCode::kUsage, "{} has no node '{}'; `ridgeline explain {}` lists all", arguments.path, node,
         arguments.path);
  CompileOptions options;
  ask_precision(options.pipeline, precision);
  options.plan.threads = common.threads;
  options.plan.device = device_kind(common);
  ConstantStore store;
  Compiled compiled;
  naming_file(arguments.path, [&] { compiled = compile(model, options, store); });
  common.notes.insert(common.notes.end(), compiled.notes.begin(), compiled.notes.end());
  if (!common.machine.empty()) {
    const DescribedPlan described = describe_plan(*compiled.plan, find_machine(common.machine), node);
    common.show(described.json, described.text);
    return;
  }
  Json rewrites = Json::array(), dispatch = Json::array();
  std::string text = "rewrites\n";
  for (const Decision& d : compiled.decisions.all) {
    if (!concerns(d.nodes, node)) continue;
    rewrites.push_back({{"pass", d.pass},
                        {"nodes", d.nodes},
                        {"action", std::string(name(d.action))},
                        {"reason_code", d.reason_code},
                        {"reason", d.reason}});
    text += fmt::format("  {:<8} {:<26} {}{}\n", name(d.action), d.pass, fmt::join(d.nodes, " + "),
                        d.reason.empty() ? "" : fmt::format("\n           {}: {}", d.reason_code, d.reason));
  }
  text += "\nsteps\n";
  int fallbacks = 0;
  const std::function<void(const Plan&, const std::string&)> list = [&](const Plan& plan, const std::string& indent) {
    for (const Step& step : plan.steps) {
      const std::vector<std::string> nodes = step.origin.empty() ? std::vector<std::string>{step.name} : step.origin;
      const bool shown = concerns(nodes, node);
      for (const PlannedBody& body : shown ? std::vector<PlannedBody>() : planned_bodies(step))
        if (body.plan) list(*body.plan, indent);  // the node may be one of a body's
      if (!shown) continue;
      Json rejected = Json::array();
      const std::string chosen(step.call.kernel->name);
      const std::string known_as = step.call.problem.program ? known_function(*step.call.problem.program) : "";
      text += fmt::format("{}  {:<26} {} ({}){}\n{}    {}\n", indent, chosen, fmt::join(nodes, " + "),
                          step.choice.chosen_by, known_as.empty() ? "" : " = " + known_as, indent,
                          problem_words(step.call.problem));
      for (const Candidate& c : step.choice.candidates) {
        if (c.kernel == step.call.kernel) continue;
        const std::string why = c.support.ok ? why_not(c, step) : c.support.reason;
        rejected.push_back({{"kernel", std::string(c.kernel->name)}, {"reason", why}});
        text += fmt::format("{}      not {}: {}\n", indent, c.kernel->name, why);
      }
      if (is_reference(*step.call.kernel)) ++fallbacks;
      dispatch.push_back({{"nodes", nodes},
                          {"problem", problem_words(step.call.problem)},
                          {"chosen", chosen},
                          {"chosen_by", step.choice.chosen_by},
                          {"tile", tile_words(step.call.tile)},
                          {"rejected", rejected}});
      for (const PlannedBody& body : planned_bodies(step)) {
        text += fmt::format("{}    {}{}\n", indent, body.label, body.plan ? ":" : ": no plan: " + body.why_not);
        if (body.plan) list(*body.plan, indent + "    ");
      }
    }
  };
  list(*compiled.plan, "");
  const int host = compiled.plan->host_steps();
  text += fmt::format("\n{} steps, {} on the reference kernel{}\n", dispatch.size(), fallbacks,
                      host ? fmt::format(", {} on the host: their operands are copied there and back", host) : "");
  const LayoutSummary& layouts = compiled.plan->layouts;
  if (layouts.images > 0 && node.empty()) {
    text += fmt::format(
        "layouts: {} of {} images are stored channels last, the others planar, since kernels and copies of the steps "
        "that touch them are estimated at {:.3f} ms so; all channels last {:.3f} ms, all planar {:.3f} ms\n",
        layouts.last, layouts.images, layouts.chosen_ns / 1e6, layouts.all_last_ns / 1e6, layouts.all_planar_ns / 1e6);
  }
  const Json layouts_json = {{"images", layouts.images},
                             {"channels_last", layouts.last},
                             {"estimated_ms", layouts.chosen_ns / 1e6},
                             {"all_channels_last_ms", layouts.all_last_ns / 1e6},
                             {"all_planar_ms", layouts.all_planar_ns / 1e6}};
  common.show({{"rewrites", rewrites},
               {"dispatch", dispatch},
               {"reference_fallbacks", fallbacks},
               {"host_steps", host},
               {"layouts", layouts_json}},
              text);
}

std::string teaching_text(const teach::Task& task, const std::vector<teach::Row>& rows) {
  std::string text = fmt::format(
      "{}: {} FLOPs. Median of interleaved runs; roof: the peak of multiply-adds, measured between them; MB: what "
      "passes "
      "between the second-level cache and what is behind it, by the order of the loops\n{:<18} {:>11} {:>9} {:>9} "
      "{:>6}  "
      "{}\n",
      task.problem, task.flops, "step", "median us", "GFLOP/s", "MB", "roof", "against the one before");
  std::string ideas;
  for (size_t i = 0; i < rows.size(); ++i) {
    const teach::Row& row = rows[i];
    const bool step = int(i) < task.steps;
    const std::string threads = row.way->threads > 1 ? fmt::format("{} threads", row.way->threads) : "";
    std::string against;
    if (step && i > 0) against = fmt::format("{:.2f} x{}", row.gain, row.clear ? "" : ", not clear: rounds differ");
    if (step && i > 0 && row.gain < 1 && row.clear) against += ": no gain on this machine";
    text += fmt::format("{:<18} {:>11.1f} {:>9.2f} {:>9.1f} {:>5.1f}%  {}{}{}\n",
                        step ? fmt::format("{} {}", i + 1, row.way->name) : row.way->name, row.samples.median() / 1e3,
                        row.gop_s, double(row.way->bytes) / 1e6, row.roof_share() * 100, against,
                        against.empty() || threads.empty() ? "" : ", ", threads);
    if (step) ideas += fmt::format("{} {:<12} {}: {}\n", i + 1, row.way->name, row.way->file, row.way->idea);
  }
  return text + "\n" + ideas + "The rows without a number are the library's own kernel.\n";
}

void teach_step_by_step(const Common& common, const std::string& what, const std::vector<std::string>& keys,
                        double seconds) {
  if (!common.machine.empty())
    fail(ErrorCode::kUsage, "explain {}: what is not here cannot be timed: no --machine", what);
  if (!cached_ceilings()) common.progress("ridgeline: measuring the machine's ceilings, once (about 15 s)");
  machine_ceilings();
  const int threads = common.threads ? common.threads : available_cores();
  const int64_t l2 = this_cpu().caches.l2;
  const teach::Task task = what == "matmul" ? teach::matmul_task(keys, threads, l2, common.seed)
                                            : teach::conv_task(keys, threads, l2, common.seed);
  common.progress(
      fmt::format("ridgeline: {} in {} ways, {} s or three runs of each", task.problem, task.ways.size(), seconds));
  constexpr int64_t kProgressNs = 5'000'000'000;
  int64_t said = now_ns();
  const std::vector<teach::Row> rows = climb(task, seconds, [&](int round) {
    if (const int64_t now = now_ns(); now - said > kProgressNs) {
      common.progress(fmt::format("ridgeline: every way is right; {} rounds of them are timed", round));
      said = now;
    }
  });
  Json steps = Json::array(), own = Json::array();
  for (const teach::Row& row : rows) {
    const bool step = !row.way->file.empty();
    Json entry = {{"name", row.way->name},
                  {"idea", row.way->idea},
                  {"median_us", row.samples.median() / 1e3},
                  {"p10_us", row.samples.p10() / 1e3},
                  {"p90_us", row.samples.p90() / 1e3},
                  {"gop_s", row.gop_s},
                  {"bytes", row.way->bytes},
                  {"roof_gop_s", row.roof_gop_s},
                  {"roof_share", row.roof_share()},
                  {"threads", row.way->threads}};
    if (step) entry.update({{"file", row.way->file}, {"gain", row.gain}, {"clear", row.clear}});
    (step ? steps : own).push_back(entry);
  }
  common.show({{"problem", task.problem}, {"flops", task.flops}, {"steps", steps}, {"own", own}},
              teaching_text(task, rows));
}

}  // namespace

void add_explain(CLI::App& app, Common& common) {
  struct Arguments {
    ModelArguments model;
    std::vector<std::string> words;
    std::string precision = "f32";
    double seconds = 6;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = add_command(
      app, common, "explain", "Say what was fused, which kernel runs each step, and why not otherwise",
      [&common, arguments] {
        const std::string& what = arguments->model.path;
        if (what == "matmul" || what == "conv") {
          if (!arguments->model.dims.empty() || !arguments->model.inputs.empty() || arguments->precision != "f32")
            fail(ErrorCode::kUsage, "explain {}: --dim, --input and --precision are for models; sizes are KEY=VALUE",
                 what);
          if (common.cuda() && what == "conv") later("explain conv --device cuda");
          if (common.cuda()) return teach_on_cuda(common, arguments->words, arguments->seconds);
          return teach_step_by_step(common, what, arguments->words, arguments->seconds);
        }
        if (arguments->words.size() > 1)
          fail(ErrorCode::kUsage, "explain {}: one node at a time, not '{}'", what, fmt::join(arguments->words, " "));
        explain(common, arguments->model, arguments->words.empty() ? "" : arguments->words[0], arguments->precision);
      });
  arguments->model.add_to(command);
  command->get_option("model")->description(
      "An ONNX file; or matmul or conv: from three loops to the peak, step by step");
  add_precision(command, arguments->precision);
  command->add_option("node", arguments->words, "Only what concerns this node; with matmul or conv: KEY=VALUE ...");
  command->add_option("--time", arguments->seconds, "Seconds of measurement, with matmul or conv (default 6)")
      ->check(seconds_to_measure());
}

}  // namespace ridgeline::cli
