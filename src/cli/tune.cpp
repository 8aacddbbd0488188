// ridgeline tune: measures kernels and tiles for a model's problems, or for one, and keeps what is faster.
#include <filesystem>

#include "cli/common.h"
#include "session/tuning.h"

namespace ridgeline::cli {
namespace {

struct Arguments {
  std::string target;
  std::vector<std::string> keys, inputs, dims;
  double seconds = 2, budget = 0;
  std::string export_file;
  bool forget = false, list = false;
};

bool is_model(const std::string& target) {
  return target.ends_with(".onnx") || std::filesystem::is_regular_file(target);
}

void tune(const Common& common, const Arguments& a) {
  if (!a.export_file.empty()) check_folder_of(a.export_file);
  TuningOptions options;
  options.threads = common.threads;
  options.seconds = a.seconds;
  options.budget_seconds = a.budget;
  options.seed = common.seed + 1;
  options.progress = [&common](const std::string& line) { common.progress(line); };
  TuningSession session(options);
  if (a.forget || a.list || a.target.empty()) {
    if (!a.target.empty())
      fail(ErrorCode::kUsage, "--list and --forget concern all results of this machine: give no problem");
    if (!a.forget && !a.list && a.export_file.empty())
      fail(ErrorCode::kUsage, "tune: give a model, or an operator with its keys (--list shows what is tuned already)");
    if (a.forget) session.forget();
  } else if (is_model(a.target)) {
    if (!a.keys.empty()) fail(ErrorCode::kUsage, "tune {}: '{}' is no option", a.target, a.keys[0]);
    ModelArguments model{a.target, a.inputs, a.dims};
    session.tune_model(model.load(common));
  } else {
    session.tune_words(a.target, a.keys);
  }
  if (!a.export_file.empty()) session.export_to(a.export_file);
  common.show(session.json(), session.text(a.list));
}

}  // namespace

void add_tune(CLI::App& app, Common& common) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = add_command(app, common, "tune",
                                  "Measure every kernel and tile for a model's problems, or one operator's, and keep "
                                  "what is faster on this machine",
                                  [&common, a] { tune(common, *a); });
  command->add_option("target", a->target, "An ONNX file, or an operator as `bench` takes it");
  command->add_option("keys", a->keys, "KEY=VALUE ... of an operator");
  command->add_option("--input", a->inputs, "A model's input: --input NAME=FILE.npy (may be repeated)");
  command->add_option("--dim", a->dims, "The extent of an open dimension: --dim batch=8 (may be repeated)");
  command->add_option("--time", a->seconds, "Seconds of measurement a problem, at most (default 2)")
      ->check(seconds_to_measure());
  command->add_option("--budget", a->budget, "Seconds in all, then stop: problems that cost most come first")
      ->check(seconds_to_measure());
  command->add_option("--export", a->export_file,
                      "Also write all results of this machine as a tile table (share/tiles, RIDGELINE_TILE_TABLE)");
  command->add_flag("--list", a->list, "Show what is tuned for this machine");
  command->add_flag("--forget", a->forget, "Forget what is tuned for this machine");
}

}  // namespace ridgeline::cli
