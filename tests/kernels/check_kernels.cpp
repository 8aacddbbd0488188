// The sweep of `ridgeline check` without the rest of the program: check_kernels CASES LEVEL FAMILY...
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "ridgeline/error.h"
#include "verify/check.h"

namespace {

// Of each kernel: an emulator is some fifteen times slower, and most of what it does is to draw problems for the
// kernels that few reach (20 runs of each are 90 s for the products, 45 for the convolutions).
constexpr int64_t kLeastRuns = 5;

// Whether the family passed: nothing failed, and kernels other than the reference ran at all.
bool check_family(const char* family, const char* level, int64_t cases) {
  const auto start = std::chrono::steady_clock::now();
  ridgeline::CheckOptions options;
  options.family = family;
  options.isa = level;
  options.cases = cases;
  options.least_runs = kLeastRuns;
  const ridgeline::CheckResult result = ridgeline::check(options);
  int64_t kernels = 0, reached = 0;
  for (const auto& [kernel, runs] : result.runs) {
    fmt::print("  {:<28} {:>6} runs\n", kernel, runs);
    if (kernel == "cpu.reference") continue;
    ++kernels;
    reached += runs > 0;
  }
  for (const ridgeline::CheckFailure& failure : result.failures)
    fmt::print("FAILED {}\n       {}\n", failure.line, failure.reason);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{} at level {}: {} problems, {} failed, {} of {} kernels reached, {:.1f} s\n", family, level,
             result.cases, result.failed, reached, kernels, seconds.count());
  std::fflush(stdout);
  return result.failed == 0 && reached > 0;
}

}  // namespace

int main(int count, char** words) {
  if (count < 4) {
    fmt::print(stderr, "check_kernels CASES LEVEL FAMILY...\n");
    return 2;
  }
  try {
    bool passed = true;
    for (int i = 3; i < count; ++i) passed = check_family(words[i], words[2], std::atoll(words[1])) && passed;
    return passed ? 0 : 1;
  } catch (const ridgeline::Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 2;
  }
}
