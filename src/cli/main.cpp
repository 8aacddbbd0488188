#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <stdexcept>

#include "cli/common.h"
#include "core/new_file.h"
#include "core/words.h"
#include "kernels/cpu/simd.h"
#include "ridgeline/error.h"

namespace ridgeline::cli {
namespace {

// Where a standard stream is closed, the next file that is opened would take its place and its output.
void fill_standard_streams() {
  for (int stream : {0, 1, 2}) {
    if (fcntl(stream, F_GETFD) >= 0) continue;
    // Standard output for reading: what is written there fails, as it should.
    if (open("/dev/null", stream == 2 ? O_WRONLY : O_RDONLY) < 0) _exit(3);
  }
}

void stop(int signal) {
  remove_unfinished_files();
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

// A first word that is no command: what may have been meant.
void check_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const std::string given = argv[1];
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), given) != names.end()) return;
  const std::vector<std::string_view> words(names.begin(), names.end());
  const std::string_view nearest = nearest_word(given, words);
  fail(ErrorCode::kUsage, "there is no command '{}'{}; `ridgeline --help` lists all", given,
       nearest.empty() ? "" : fmt::format("; the nearest is '{}'", nearest));
}

int complain(std::string_view what, int exit_code) {
  const std::string line = "ridgeline: " + printable(what) + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  return exit_code;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Ridgeline takes an ONNX model, finds what bounds each operator on this machine, rewrites and tunes it, and "
      "proves each step.\n"
      "Start with:  ridgeline make resnet50 -o resnet50.onnx  and  ridgeline optimize resnet50.onnx\n"
      "Each command takes --help. What was measured is kept in ~/.cache/ridgeline (RIDGELINE_CACHE_DIR moves it);\n"
      "RIDGELINE_ISA=scalar, avx2, avx512 or vnni forces a lower instruction set.",
      "ridgeline");
  app.require_subcommand(1);
  app.set_version_flag("--version", "ridgeline 0.1.0");
  Common common;
  try {
    cpu::limit_isa_from_environment();
    add_optimize(app, common);
    add_run(app, common);
    add_inspect(app, common);
    add_profile(app, common);
    add_explain(app, common);
    add_verify(app, common);
    add_make(app, common);
    add_machine(app, common);
    add_bench(app, common);
    add_cost(app, common);
    add_tune(app, common);
    add_regret(app, common);
    add_passes(app, common);
    add_op(app, common);
    add_kernels(app, common);
    add_check(app, common);
    add_suite(app, common);
    add_pareto(app, common);
    add_diff(app, common);
    add_replay(app, common);
    check_command(app, argc, argv);
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const Error& error) {
    return complain(error.what(), error.exit_code());
  } catch (const std::bad_alloc&) {
    return complain("out of memory", 3);
  } catch (const std::length_error&) {
    return complain("out of memory: a list would be longer than memory can hold", 3);
  } catch (const std::filesystem::filesystem_error& error) {
    return complain(error.path1().string() + ": " + error.code().message(), 2);
  } catch (const std::exception& error) {
    return complain(error.what(), 2);
  }
  return common.exit_code;
}

}  // namespace
}  // namespace ridgeline::cli

int main(int argc, char** argv) {
  using namespace ridgeline::cli;
  fill_standard_streams();
  // glibc's first value, but kept: it raises it to 32 MiB as large blocks are freed, and weights packed and released
  // one by one then leave holes that the system does not get back. Peaks of `run`, MiB: ResNet-50 183, so 145 (1 MiB:
  // 150), EfficientNet-B0 48, so 41 (54).
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  for (int signal : {SIGINT, SIGTERM, SIGHUP}) {
    if (std::signal(signal, stop) == SIG_IGN) std::signal(signal, SIG_IGN);  // as nohup wants it
  }
  const int exit_code = run(argc, argv);
  // What stands in the buffer may fail yet: a full disk, or nobody to read it.
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) || !std::cout)
    return complain("standard output cannot be written: is the disk full, or is it closed?", 3);
  return exit_code;
}
