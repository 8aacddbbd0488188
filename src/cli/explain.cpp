// ridgeline explain: what each pass and the dispatcher did with each node, and why not something else.
#include <algorithm>

#include "cli/common.h"
#include "kernels/reference/reference.h"
#include "session/described_choice.h"
#include "session/problem_words.h"

namespace ridgeline::cli {
namespace {

bool concerns(const std::vector<std::string>& nodes, const std::string& node) {
  return node.empty() || std::find(nodes.begin(), nodes.end(), node) != nodes.end();
}

void explain(const Common& common, const ModelArguments& arguments, const std::string& node) {
  if (arguments.path == "matmul" || arguments.path == "conv") later("explain " + arguments.path);
  Model model = arguments.load(common);
  std::vector<std::string> known;
  for (NodeId id : model.graph.order()) known.push_back(model.graph.node(id).name);
  if (!node.empty() && std::find(known.begin(), known.end(), node) == known.end())
    fail(ErrorCode::kUsage, "{} has no node '{}'; `ridgeline explain {}` lists all", arguments.path, node,
         arguments.path);
  CompileOptions options;
  options.plan.threads = common.threads;
  ConstantStore store;
  Compiled compiled;
  naming_file(arguments.path, [&] { compiled = compile(model, options, store); });
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
  for (const Step& step : compiled.plan->steps) {
    const std::vector<std::string> nodes = step.origin.empty() ? std::vector<std::string>{step.name} : step.origin;
    if (!concerns(nodes, node)) continue;
    Json rejected = Json::array();
    const std::string chosen(step.call.kernel->name);
    const std::string known_as = step.call.problem.program ? known_function(*step.call.problem.program) : "";
    text += fmt::format("  {:<26} {} ({}){}\n    {}\n", chosen, fmt::join(nodes, " + "), step.choice.chosen_by,
                        known_as.empty() ? "" : " = " + known_as, problem_words(step.call.problem));
    for (const Candidate& c : step.choice.candidates) {
      if (c.kernel == step.call.kernel) continue;
      const std::string why = c.support.ok ? fmt::format("estimated at {:.1f} us, the chosen one at {:.1f} us",
                                                         c.estimate_ns / 1e3, step.predicted_ns / 1e3)
                                           : c.support.reason;
      rejected.push_back({{"kernel", std::string(c.kernel->name)}, {"reason", why}});
      text += fmt::format("      not {}: {}\n", c.kernel->name, why);
    }
    if (is_reference(*step.call.kernel)) ++fallbacks;
    dispatch.push_back({{"nodes", nodes},
                        {"problem", problem_words(step.call.problem)},
                        {"chosen", chosen},
                        {"chosen_by", step.choice.chosen_by},
                        {"rejected", rejected}});
  }
  text += fmt::format("\n{} steps, {} on the reference kernel\n", dispatch.size(), fallbacks);
  common.show({{"rewrites", rewrites}, {"dispatch", dispatch}, {"reference_fallbacks", fallbacks}}, text);
}

}  // namespace

void add_explain(CLI::App& app, Common& common) {
  struct Arguments {
    ModelArguments model;
    std::string node;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      add_command(app, common, "explain", "Say what was fused, which kernel runs each step, and why not otherwise",
                  [&common, arguments] { explain(common, arguments->model, arguments->node); });
  arguments->model.add_to(command);
  command->add_option("node", arguments->node, "Only what concerns this node");
}

}  // namespace ridgeline::cli
