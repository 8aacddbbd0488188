// ridgeline optimize: the ladder.
#include "cli/common.h"
#include "formats/onnx/export.h"
#include "session/ladder.h"
#include "session/ladder_report.h"
#include "tune/probes.h"

namespace ridgeline::cli {
namespace {

struct Arguments {
  ModelArguments model;
  std::string output;
  std::vector<std::string> disabled;
  double seconds = 3;
};

void optimize(const Common& common, const Arguments& arguments) {
  if (arguments.output.ends_with(".ridge")) later("writing a saved plan (.ridge)");
  if (!arguments.output.empty() && !arguments.output.ends_with(".onnx"))
    fail(ErrorCode::kUsage, "-o {}: a model is written as .onnx", arguments.output);
  parse_pipeline("all", arguments.disabled);  // names and files are checked before any work
  if (!arguments.output.empty()) check_folder_of(arguments.output);
  auto say = [&](const std::string& line) { common.progress("ridgeline: " + line); };
  Model model = arguments.model.load(common);
  if (!cached_ceilings()) say("measuring the machine's ceilings, once (about 15 s)");
  const Ceilings ceilings = machine_ceilings();
  LadderOptions options;
  options.threads = common.threads;
  options.disabled = arguments.disabled;
  options.seconds = arguments.seconds;
  options.ceilings = &ceilings;
  options.progress = say;
  Ladder ladder;
  naming_file(arguments.model.path, [&] { ladder = build_ladder(model, options); });
  if (!arguments.output.empty()) export_onnx(ladder.final.graph, arguments.output);
  common.show(ladder_json(model, ladder, ceilings), ladder_text(model, ladder, ceilings));
}

}  // namespace

void add_optimize(CLI::App& app, Common& common) {
  auto arguments = std::make_shared<Arguments>();
  CLI::App* command =
      add_command(app, common, "optimize", "Optimize a model stage by stage, measured, verified and explained",
                  [&common, arguments] { optimize(common, *arguments); });
  arguments->model.add_to(command);
  command->add_option("-o,--output", arguments->output, "Write the optimized model as standard ONNX");
  command->add_option("--disable-pass", arguments->disabled, "Switch one pass off (may be repeated)");
  command
      ->add_option("--time", arguments->seconds, "Seconds of measurement of all stages together, at least (default 3)")
      ->check(seconds_to_measure());
  for (const char* option : {"--precision", "--max-error", "--mem-budget", "--objective", "--strategy"}) {
    command->add_option_function<std::string>(
        option,
        [option](const std::string& value) {
          if (std::string_view(option) != "--precision" || value != "f32") later(option);
        },
        "A later release");
  }
}

}  // namespace ridgeline::cli
