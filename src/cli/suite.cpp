// ridgeline suite: ONNX backend-test folders.
#include "verify/suite.h"

#include "cli/common.h"

namespace ridgeline::cli {
namespace {

// A case through everything a model goes through.
std::vector<Tensor> run_case(Graph graph, const std::vector<Tensor>& inputs, const PipelineOptions& pipeline,
                             int threads) {
  LoadOptions load;
  for (size_t i = 0; i < inputs.size() && i < graph.inputs.size(); ++i)
    load.inputs[graph.value(graph.inputs[i]).name] = inputs[i];
  Model model = bind_model(std::move(graph), load);
  CompileOptions options;
  options.pipeline = pipeline;
  options.plan.threads = threads;
  ConstantStore store;
  const Compiled compiled = compile(model, options, store);
  const std::vector<std::string> faults = check_plan(*compiled.plan);
  if (!faults.empty()) throw std::logic_error("the plan is unsound: " + faults.front());
  Runner runner(compiled.plan, model.feeds);
  runner.executor().poison();
  runner.run();
  return runner.outputs();
}

}  // namespace

void add_suite(CLI::App& app, Common& common) {
  struct Arguments {
    std::string folder, passes = "all";
    SuiteOptions options;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command = add_command(
      app, common, "suite", "Run ONNX backend-test folders (model.onnx with test_data_set_*)", [&common, arguments] {
        const PipelineOptions pipeline = parse_pipeline(arguments->passes, {});
        const int threads = common.threads ? common.threads : 1;
        arguments->options.run = [&](Graph graph, const std::vector<Tensor>& inputs) {
          return run_case(std::move(graph), inputs, pipeline, threads);
        };
        const SuiteResult r = run_suite(arguments->folder, arguments->options);
        auto list = [](const std::vector<SuiteCase>& cases) {
          Json out = Json::array();
          for (const SuiteCase& c : cases) out.push_back({{"case", c.name}, {"reason", c.reason}});
          return out;
        };
        std::string text;
        for (const SuiteCase& c : r.wrong) text += fmt::format("WRONG   {}: {}\n", c.name, c.reason);
        for (const SuiteCase& c : r.refused) text += fmt::format("refused {}: {}\n", c.name, c.reason);
        text += fmt::format("{} cases: {} passed, {} wrong, {} refused, {} random (compared by type and shape)\n",
                            r.cases, r.passed.size(), r.wrong.size(), r.refused.size(), r.random.size());
        common.show({{"cases", r.cases},
                     {"passed", r.passed},
                     {"wrong", list(r.wrong)},
                     {"refused", list(r.refused)},
                     {"random", r.random}},
                    text);
        common.exit_code = r.wrong.empty() ? 0 : 1;
      });
  command->add_option("folder", arguments->folder, "Searched for folders with a model.onnx")->required();
  command->add_option("--filter", arguments->options.filter, "Only folders whose name fits this pattern (*, ?)");
  command->add_option("--passes", arguments->passes,
                      "all, none, or names separated by commas (see `ridgeline passes`)");
}

}  // namespace ridgeline::cli
