// ridgeline machine: the CPU, its instruction sets and caches, and its measured ceilings.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "cli/common.h"
#include "tune/cuda_ceilings.h"
#include "tune/machine_report.h"
#include "tune/probes.h"

namespace ridgeline::cli {
namespace {

// One line that is written over, and wiped at the end; on a file or pipe nothing but the first.
ProbeProgress progress_line(const Common& common) {
  if (common.quiet) return {};
  const bool terminal = isatty(STDERR_FILENO);
  if (!terminal) fmt::print(stderr, "measuring the machine's ceilings, about 15 s\n");
  return [terminal](double done, const std::string& what) {
    if (!terminal) return;
    if (done < 1)
      fmt::print(stderr, "\rmeasuring the ceilings {:3.0f} %  {:<40}", 100 * done, what);
    else
      fmt::print(stderr, "\r{:70}\r", "");
    std::fflush(stderr);
  };
}

void machine(const Common& common, bool measure) {
  const bool known = !measure && load_ceilings(this_cpu().fingerprint());
  const Ceilings ceilings = machine_ceilings(measure, known ? ProbeProgress() : progress_line(common));
  Json document = machine_json(this_cpu(), ceilings);
  std::string text = machine_text(this_cpu(), ceilings);
  std::optional<Ceilings> gpu;
  if (common.cuda()) gpu = cuda_ceilings(measure, progress_line(common));
  document["gpus"] = gpus_json(gpu ? &*gpu : nullptr);
  text += gpus_text(gpu ? &*gpu : nullptr);
  common.show(document, text);
}

}  // namespace

void add_machine(CLI::App& app, Common& common) {
  auto measure = std::make_shared<bool>(false);
  CLI::App* command = add_command(app, common, "machine", "What this machine can do: cores, caches, measured ceilings",
                                  [&common, measure] { machine(common, *measure); });
  command->add_flag("--measure", *measure, "Measure again, though the ceilings are known");
}

}  // namespace ridgeline::cli
