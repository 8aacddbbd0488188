#include "cli/common.h"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>

#include "formats/npy.h"

namespace ridgeline::cli {

void Common::show(const Json& document, const std::string& text) const {
  if (!json_only() && !quiet) std::fwrite(text.data(), 1, text.size(), stdout);
  if (!json.empty()) {
    const std::string serialized = document.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (json == "-") {
      std::fwrite(serialized.data(), 1, serialized.size(), stdout);
    } else {
      std::ofstream file(json);
      file << serialized;
      file.close();
      if (!file) fail(ErrorCode::kResource, "cannot write {}", json);
    }
  }
}

void Common::progress(const std::string& line) const {
  if (!quiet) fmt::print(stderr, "{}\n", line);
}

CLI::App* add_command(CLI::App& app, Common& common, const std::string& name, const std::string& what,
                      std::function<void()> body) {
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("--threads", common.threads, "Threads (default: what the container allows)")
      ->check(CLI::Range(1, 1024));
  command->add_option("--device", common.device, "cpu (cuda[:i] comes with a later release)");
  command->add_option("--json", common.json,
                      "Write the result as JSON to a file; - for standard output, then nothing else is printed there");
  command->add_flag("--quiet", common.quiet, "Print no text");
  command->add_option("--seed", common.seed, "Seed of made-up inputs, weights and problems");
  command->add_option_function<std::string>(
      "--machine", [](const std::string&) { later("--machine"); },
      "Cost and advise for a described machine (a later release)");
  command->callback([&common, body = std::move(body)] {
    if (common.device != "cpu") {
      if (!common.device.starts_with("cuda"))
        fail(ErrorCode::kUsage, "--device {}: there are cpu and cuda[:i]", common.device);
      later("--device " + common.device);
    }
    if (!common.json.empty() && !common.json_only()) check_folder_of(common.json);
    body();
  });
  return command;
}

void ModelArguments::add_to(CLI::App* command) {
  command->add_option("model", path, "An ONNX file")->required();
  command->add_option("--input", inputs, "An input's content, else seeded: --input NAME=FILE.npy (may be repeated)");
  command->add_option("--dim", dims,
                      "The extent of an open dimension, else 1: --dim batch=8 (may be repeated; `inspect` shows "
                      "their names)");
}

LoadOptions ModelArguments::load_options(const Common& common) const {
  LoadOptions options;
  options.seed = common.seed;
  for (const std::string& word : dims) {
    const size_t eq = word.rfind('=');
    char* end = nullptr;
    const int64_t extent = eq == std::string::npos ? 0 : std::strtoll(word.c_str() + eq + 1, &end, 10);
    if (eq == std::string::npos || eq + 1 == word.size() || *end)
      fail(ErrorCode::kUsage, "--dim {}: expected NAME=N", word);
    options.dims[word.substr(0, eq)] = extent;
  }
  for (const std::string& word : inputs) {
    const size_t eq = word.rfind('=');
    if (eq == std::string::npos) fail(ErrorCode::kUsage, "--input {}: expected NAME=FILE.npy", word);
    options.inputs[word.substr(0, eq)] = read_npy(word.substr(eq + 1));
  }
  return options;
}

void check_folder_of(const std::string& file) {
  const std::filesystem::path parent = std::filesystem::path(file).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (!std::filesystem::is_directory(folder))
    fail(ErrorCode::kResource, "{} cannot be written: there is no folder {}", file, folder);
  if (access(folder.c_str(), W_OK) != 0)
    fail(ErrorCode::kResource, "{} cannot be written: the folder {} is not writable", file, folder);
}

void later(const std::string& what) { fail(ErrorCode::kUsage, "unsupported: {} comes with a later release", what); }

}  // namespace ridgeline::cli
