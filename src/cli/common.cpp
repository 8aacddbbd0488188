#include "cli/common.h"

#include <fmt/format.h>

#include <unistd.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>

#include "cli/external_root.h"
#include "core/words.h"
#include "formats/npy.h"
#include "kernels/cuda/device.h"
#include "session/load.h"
#include "tune/cuda_ceilings.h"
#include "tune/known.h"
#include "tune/probes.h"

namespace ridgeline::cli {
namespace {

constexpr double kLeastSeconds = 0.001, kMostSeconds = 86400;

}  // namespace

void Common::show(const Json& result, const std::string& text) const {
  if (const std::string trouble = known_trouble(); !trouble.empty())
    notes.push_back("choices are made without tuned results: " + trouble);
  // The text first: a JSON file that cannot be written loses nothing then.
  if (!json_only() && !quiet) {
    std::string shown = printable(text);
    for (const std::string& note : notes) shown += "note: " + printable(note) + "\n";
    std::fwrite(shown.data(), 1, shown.size(), stdout);
  }
  if (!json.empty()) {
    Json document = result;
    if (!notes.empty()) document["notes"] = notes;
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
  if (!quiet) fmt::print(stderr, "{}\n", printable(line));
}

namespace {

// "cuda" is the first one.
int cuda_ordinal(const std::string& device) {
  int ordinal = 0;
  if (device == "cuda") return 0;
  if (device.starts_with("cuda:")) {
    const char *begin = device.data() + 5, *end = device.data() + device.size();
    const auto [stop, error] = std::from_chars(begin, end, ordinal);
    if (error == std::errc() && stop == end && ordinal >= 0) return ordinal;
  }
  fail(ErrorCode::kUsage, "--device {}: there are cpu and cuda[:i]", device);
}

}  // namespace

DeviceKind device_kind(const Common& common) { return common.cuda() ? DeviceKind::kCuda : DeviceKind::kCpu; }

Ceilings device_ceilings(const Common& common) {
  if (common.cuda()) return cuda_ceilings();
  if (!cached_ceilings()) common.progress("ridgeline: measuring the machine's ceilings, once (about 15 s)");
  return machine_ceilings();
}

CLI::App* add_command(CLI::App& app, Common& common, const std::string& name, const std::string& what,
                      std::function<void()> body) {
  CLI::App* command = app.add_subcommand(name, what);
  command->add_option("--threads", common.threads, "Threads (default: what the container allows)")
      ->check(whole_number(1, 1024));
  command->add_option("--device", common.device, "cpu or cuda[:i] (an NVIDIA GPU of sm_80 or newer; default cpu)");
  command->add_option("--json", common.json,
                      "Write the result as JSON to a file; - for standard output, then nothing else is printed there");
  command->add_flag("--quiet", common.quiet, "Print no text");
  command->add_option("--seed", common.seed, "Seed of made-up inputs, weights and problems")
      ->check(whole_number(0, INT64_MAX));
  command->add_option("--machine", common.machine,
                      "Answer for a described machine: a100, v100, h200, zen4-2core, npu, or a file (cost, explain, "
                      "bench --dry)");
  command->callback([&common, command, body = std::move(body)] {
    const std::string& name = command->get_name();
    // An option that a script fills from a variable that is not set would count as not given.
    for (const CLI::Option* option : command->get_options())
      for (const std::string& value : option->results())
        if (value.empty()) fail(ErrorCode::kUsage, "{}: its value is empty", option->get_name());
    if (!common.machine.empty() && name != "cost" && name != "bench" && name != "explain")
      fail(ErrorCode::kUsage,
           "--machine: '{}' runs on this machine; a described one answers cost, bench --dry and explain", name);
    if (common.device != "cpu") {
      const int ordinal = cuda_ordinal(common.device);
      static const std::set<std::string> ready = {"bench",   "check",    "machine", "kernels", "run",
                                                  "profile", "optimize", "verify",  "explain", "replay"};
      if (!ready.count(name)) later(fmt::format("{} --device {}", name, common.device));
      // What only chooses and lists does so for an H200 where there is no card.
      const bool runs = name != "kernels" && name != "explain";
      if (runs || cuda::driver_trouble().empty()) cuda::use_device(ordinal);
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
  command->add_option("--external-root", external_root(),
                      "A folder that links in place of external weights may lead into; without it none is followed");
}

LoadOptions ModelArguments::load_options(const Common& common) const {
  LoadOptions options;
  options.seed = common.seed;
  for (const std::string& word : dims) {
    const size_t eq = word.rfind('=');
    int64_t extent = 0;
    const char *begin = word.data() + (eq == std::string::npos ? 0 : eq + 1), *end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(begin, end, extent);
    if (eq == std::string::npos || error != std::errc() || stop != end)
      fail(ErrorCode::kUsage, "--dim {}: expected NAME=N, N a whole number", word);
    const auto [at, fresh] = options.dims.emplace(word.substr(0, eq), extent);
    if (!fresh && at->second != extent)
      fail(ErrorCode::kUsage, "--dim {}: the dimension has the extent {} already", word, at->second);
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

Model ModelArguments::load(const Common& common) const {
  return load_model(path, load_options(common), common.notes, external_root());
}

std::string& external_root() {
  static std::string root;
  return root;
}

void naming_file(const std::string& path, const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    const std::string what = error.what();
    const bool of_model = error.code() != ErrorCode::kUsage && error.code() != ErrorCode::kResource;
    if (!of_model || what.find(path) != std::string::npos) throw;
    throw Error(error.code(), path + ": " + what);
  }
}

CLI::Validator whole_number(int64_t least, int64_t most) {
  return CLI::Validator(
      [=](const std::string& word) {
        int64_t value = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
        const bool whole = error == std::errc() && end == word.data() + word.size();
        return whole && value >= least && value <= most
                   ? std::string()
                   : fmt::format("{} is not a whole number from {} to {}", word, least, most);
      },
      "");
}

CLI::Validator seconds_to_measure() {
  return CLI::Validator(
      [](const std::string& word) {
        double value = 0;
        const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
        const bool number = error == std::errc() && end == word.data() + word.size();
        return number && value >= kLeastSeconds && value <= kMostSeconds  // false for NaN
                   ? std::string()
                   : fmt::format("{} is not a number of seconds from {} to {}", word, kLeastSeconds, kMostSeconds);
      },
      "");
}

void later(const std::string& what) { fail(ErrorCode::kUsage, "unsupported: {} comes with a later release", what); }

}  // namespace ridgeline::cli
