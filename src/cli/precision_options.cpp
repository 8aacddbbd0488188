#include "cli/precision_options.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/new_file.h"
#include "core/sha256.h"
#include "core/words.h"
#include "formats/npy.h"

namespace ridgeline::cli {
namespace {

constexpr int kNoiseSets = 3;

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::error_code error;
  if (!in || std::filesystem::is_directory(path, error))
    fail(ErrorCode::kBadInput, "{}: cannot be read{}", path,
         std::filesystem::exists(path, error) ? "" : ": there is no such file (--max-error with --scales writes one)");
  return {std::istreambuf_iterator<char>(in), {}};
}

// Of the file, and of the weights where they are not all in it (external data).
std::string hash_of_model(const std::string& path, const Graph& graph) {
  std::string hash = sha256_file(path);
  int64_t weights = 0;
  for (ValueId v = 0; v < graph.value_count(); ++v)
    if (graph.value(v).is_constant()) weights += graph.value(v).info.constant.bytes();
  std::error_code error;
  if (weights <= int64_t(std::filesystem::file_size(path, error))) return hash;
  for (ValueId v = 0; v < graph.value_count(); ++v) {
    const Value& value = graph.value(v);
    if (value.is_constant()) hash += sha256(value.info.constant.data(), size_t(value.info.constant.bytes()));
  }
  return sha256(hash.data(), hash.size());
}

// Only a precision file, or none, may be replaced: a slip of the hand put one in the place of a model.
void check_scales_target(const std::string& file) {
  check_folder_of(file);
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return;
  if (std::filesystem::is_directory(file, error)) fail(ErrorCode::kUsage, "--scales {}: is a folder", file);
  if (!std::filesystem::is_regular_file(file, error)) return;
  try {
    PrecisionPlan::from_json(content_of(file), file);
  } catch (const Error&) {
    fail(ErrorCode::kUsage, "--scales {}: exists and is no precision file: it is not overwritten", file);
  }
}

// NAME.npy of each input (/ is _) from one folder.
Feeds feeds_in(const std::filesystem::path& folder, const Model& model) {
  Feeds feeds;
  for (const auto& [name, made] : model.feeds) {
    std::string file = one_line(name);
    std::replace(file.begin(), file.end(), '/', '_');
    const std::filesystem::path path = folder / (file + ".npy");
    if (!std::filesystem::exists(path))
      fail(ErrorCode::kBadInput, "{}: calibration needs the input '{}' in it, as {}.npy", folder.string(), name, file);
    feeds[name] = read_npy(path.string());
    if (feeds[name].dtype() != made.dtype() || feeds[name].shape() != made.shape())
      fail(ErrorCode::kBadInput, "{}: the input must be {}{}", path.string(), ridgeline::name(made.dtype()),
           text(made.shape()));
  }
  return feeds;
}

std::vector<Feeds> calibration_sets(const Common& common, const PrecisionArguments& arguments,
                                    const ModelArguments& model_arguments, const Model& model, std::string& words) {
  std::vector<Feeds> sets;
  if (arguments.calibrate == "noise") {
    words = fmt::format("noise, {} sets", kNoiseSets);
    for (int s = 0; s < kNoiseSets; ++s) {
      Feeds feeds = model.feeds;
      for (ValueId v : model.graph.inputs) {
        const auto at = feeds.find(model.graph.value(v).name);
        if (at != feeds.end()) at->second = make_input(model.graph, v, at->second.shape(), common.seed + uint64_t(s));
      }
      sets.push_back(std::move(feeds));
    }
    return sets;
  }
  if (!arguments.calibrate.empty()) {
    const std::filesystem::path folder = arguments.calibrate;
    if (!std::filesystem::is_directory(folder))
      fail(ErrorCode::kUsage, "--calibrate {}: 'noise', or a folder with NAME.npy of each input, or with such folders",
           arguments.calibrate);
    std::vector<std::filesystem::path> folders;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      if (entry.is_directory() && !entry.path().filename().string().starts_with('.')) folders.push_back(entry.path());
    if (folders.empty()) folders.push_back(folder);
    std::sort(folders.begin(), folders.end());
    for (const auto& each : folders) sets.push_back(feeds_in(each, model));
    words = fmt::format("{} set{} of {}", sets.size(), sets.size() == 1 ? "" : "s", folder.string());
    return sets;
  }
  if (model_arguments.inputs.size() < model.feeds.size())
    fail(ErrorCode::kUsage,
         "--max-error needs calibration inputs: give every input with --input NAME=F.npy, a folder of them with "
         "--calibrate DIR, or ask for seeded noise with --calibrate noise");
  words = "given inputs";
  return {model.feeds};
}

// Why not, where it is not the error.
std::string alone(double error, double ns, double f32_ns) {
  if (error < 0) return "not possible";
  return fmt::format("error {:.2g}{}", error, ns > 0 && ns >= f32_ns ? ", not faster" : "");
}

}  // namespace

void add_precision(CLI::App* command, std::string& precision) {
  command
      ->add_option("--precision", precision,
                   "f32, f16, bf16 or int8: f16 is the whole graph's; else what products with constant weights (bf16: "
                   "convolutions too) multiply in; sums stay f32")
      ->check(CLI::IsMember({"f32", "f16", "bf16", "int8"}));
}

void PrecisionArguments::add_to(CLI::App* command) {
  command
      ->add_option("--max-error", max_error,
                   "Search the lowest precision of each product that keeps the largest error of the outputs, over "
                   "their largest value, inside this")
      ->check(CLI::Range(1e-9, 1e3));
  command->add_option("--calibrate", calibrate,
                      "Inputs for that search: noise (seeded), or a folder with NAME.npy of each input, or with such "
                      "folders; else those given with --input");
  command->add_option("--scales", scales,
                      "With --max-error: write its result there (JSON, bound to the model by its hash); alone: use it");
}

std::optional<PrecisionPlan> precision_plan(const Common& common, const PrecisionArguments& arguments,
                                            const ModelArguments& model_arguments, Model& model,
                                            const CompileOptions& compile) {
  if (arguments.max_error <= 0 && arguments.scales.empty()) {
    if (!arguments.calibrate.empty()) fail(ErrorCode::kUsage, "--calibrate goes with --max-error");
    return std::nullopt;
  }
  if (!std::isfinite(arguments.max_error))
    fail(ErrorCode::kUsage, "--max-error {}: a number is wanted", arguments.max_error);
  if (arguments.max_error <= 0) {
    if (!arguments.calibrate.empty()) fail(ErrorCode::kUsage, "--calibrate goes with --max-error");
    PrecisionPlan plan = PrecisionPlan::from_json(content_of(arguments.scales), arguments.scales);
    if (plan.model_sha256 != hash_of_model(model_arguments.path, model.graph))
      fail(ErrorCode::kBadInput,
           "{}: was made for another model than {} (its hash differs): make it anew with "
           "--max-error",
           arguments.scales, model_arguments.path);
    return plan;
  }
  if (!arguments.scales.empty()) check_scales_target(arguments.scales);
  PrecisionSearch search;
  search.max_error = arguments.max_error;
  search.compile = compile;
  search.compile.consume = false;
  search.compile.memory_budget = 0;
  search.progress = [&](const std::string& line) { common.progress("ridgeline: " + line); };
  std::string words;
  const std::vector<Feeds> sets = calibration_sets(common, arguments, model_arguments, model, words);
  PrecisionPlan plan = search_precision(model, sets, search);
  plan.calibration = words;
  plan.model_sha256 = hash_of_model(model_arguments.path, model.graph);
  if (!arguments.scales.empty()) {
    NewFileName name(arguments.scales);
    std::ofstream out(name.part(), std::ios::binary);
    out << plan.to_json() << "\n";
    out.close();
    if (!out || !name.finish()) fail(ErrorCode::kResource, "{}: cannot be written", arguments.scales);
  }
  return plan;
}

std::optional<PrecisionPlan> searched_precision(const Common& common, const PrecisionArguments& arguments,
                                                const ModelArguments& model_arguments, Model& model,
                                                const std::string& precision, CompileOptions& compile) {
  if (arguments.asked() && (precision != "f32" || compile.pipeline.none || !compile.pipeline.only.empty()))
    fail(ErrorCode::kUsage,
         "--max-error and --scales choose the precisions themselves: no --precision, and all passes");
  std::optional<PrecisionPlan> plan;
  naming_file(model_arguments.path, [&] { plan = precision_plan(common, arguments, model_arguments, model, compile); });
  if (plan) apply_precision(*plan, compile.pipeline);
  return plan;
}

std::string precision_text(const PrecisionPlan& plan) {
  std::string text =
      fmt::format("error {:.2g}, limit {:.2g} ({}): {} products in int8, {} in bf16, {} left in f32\n", plan.error,
                  plan.max_error, plan.calibration, plan.count("int8"), plan.count("bf16"), plan.count("f32"));
  constexpr size_t kMost = 12;
  std::vector<const PrecisionLayer*> kept;
  for (const PrecisionLayer& layer : plan.layers)
    if (layer.precision == "f32") kept.push_back(&layer);
  for (size_t i = 0; i < kept.size() && i < kMost; ++i)
    text += fmt::format("  f32: {} (alone in int8: {}, in bf16: {})\n", one_line(kept[i]->root),
                        alone(kept[i]->int8_error, kept[i]->int8_ns, kept[i]->f32_ns),
                        alone(kept[i]->bf16_error, kept[i]->bf16_ns, kept[i]->f32_ns));
  if (kept.size() > kMost) text += fmt::format("  and {} more (--json lists all)\n", kept.size() - kMost);
  return text;
}

Json precision_json(const PrecisionPlan& plan) { return Json::parse(plan.to_json()); }

}  // namespace ridgeline::cli
