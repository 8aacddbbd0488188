// What every command shares: options, JSON output, exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "session/session.h"

namespace ridgeline::cli {

using Json = nlohmann::ordered_json;

/// The options that stand on every command, and what a command leaves for main.
struct Common {
  int threads = 0;
  std::string device = "cpu";  // as given: cpu, cuda, cuda:1
  bool cuda() const { return device != "cpu"; }
  std::string json;     // file, "-" for standard output
  std::string machine;  // name or file of a described machine, for cost, bench --dry and explain
  bool quiet = false;
  uint64_t seed = 0;
  int exit_code = 0;
  mutable std::vector<std::string> notes;  // on the model, from reading it

  /// True if only JSON may go to standard output.
  bool json_only() const { return json == "-"; }
  /// Writes `document`, with the notes, where --json says; prints both as text unless JSON has standard output or
  /// --quiet.
  void show(const Json& document, const std::string& text) const;
  /// A line of progress on standard error, unless --quiet.
  void progress(const std::string& line) const;
};

/// Adds the common options to a command, and runs `body` when it is chosen. Returns the command for its own options.
CLI::App* add_command(CLI::App& app, Common& common, const std::string& name, const std::string& what,
                      std::function<void()> body);

/// Options of commands that take a model.
struct ModelArguments {
  std::string path;
  std::vector<std::string> inputs;  // NAME=F.npy
  std::vector<std::string> dims;    // NAME=N
  void add_to(CLI::App* command);
  LoadOptions load_options(const Common& common) const;
  Model load(const Common& common) const;  // its notes are left in `common`
};

/// The device that --device names.
DeviceKind device_kind(const Common& common);
/// Its ceilings, measured if they are not known yet (with a line of progress).
Ceilings device_ceilings(const Common& common);

/// Fails if a result could not be written there, before the work that it is the result of.
void check_folder_of(const std::string& file);
/// What `body` says against the model names the file.
void naming_file(const std::string& path, const std::function<void()>& body);

/// Checks of options: a whole number of these, seconds to measure.
CLI::Validator whole_number(int64_t least, int64_t most);
CLI::Validator seconds_to_measure();

/// Exit 2 with a message for what comes with a later release.
[[noreturn]] void later(const std::string& what);

// One function a command, each in its own file, in the order that --help lists them.
void add_machine(CLI::App& app, Common& common);
void add_make(CLI::App& app, Common& common);
void add_inspect(CLI::App& app, Common& common);
void add_optimize(CLI::App& app, Common& common);
void add_run(CLI::App& app, Common& common);
void add_profile(CLI::App& app, Common& common);
void add_explain(CLI::App& app, Common& common);
void add_verify(CLI::App& app, Common& common);
void add_passes(CLI::App& app, Common& common);
void add_bench(CLI::App& app, Common& common);
void add_cost(CLI::App& app, Common& common);
void add_tune(CLI::App& app, Common& common);
void add_regret(CLI::App& app, Common& common);
void add_check(CLI::App& app, Common& common);
void add_suite(CLI::App& app, Common& common);
void add_pareto(CLI::App& app, Common& common);
void add_diff(CLI::App& app, Common& common);
void add_replay(CLI::App& app, Common& common);
void add_op(CLI::App& app, Common& common);
void add_kernels(CLI::App& app, Common& common);

}  // namespace ridgeline::cli
