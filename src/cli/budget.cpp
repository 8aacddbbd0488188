#include "cli/budget.h"

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "ridgeline/error.h"

namespace ridgeline::cli {
namespace {

// The prediction is 0.96 to 1.03 of what nine models took: a budget is kept by what it may be short of.
constexpr double kPredictionMargin = 1.05;

int64_t status_bytes(std::string_view key) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(key)) return std::strtoll(line.c_str() + key.size() + 1, nullptr, 10) * 1024;
  }
  return 0;
}

}  // namespace

int64_t budget_for(int64_t process_bytes) { return int64_t(double(process_bytes) * kPredictionMargin) + 1000000; }

int64_t resident_bytes() { return status_bytes("VmRSS:"); }
int64_t most_resident_bytes() { return status_bytes("VmHWM:"); }

int64_t parse_bytes(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  const std::string unit = end;
  double factor = 0;
  for (const auto& [name, bytes] : {std::pair{"", 1.0},
                                    {"B", 1.0},
                                    {"kB", 1e3},
                                    {"KB", 1e3},
                                    {"KiB", 1024.0},
                                    {"MB", 1e6},
                                    {"MiB", 1048576.0},
                                    {"GB", 1e9},
                                    {"GiB", 1073741824.0}})
    if (unit == name) factor = bytes;
  if (end == text.c_str() || factor == 0 || !std::isfinite(number) || number * factor < 1 || number * factor > 1e15)
    fail(ErrorCode::kUsage, "'{}' is no number of bytes: 150000000, 150MB and 143MiB are", text);
  if (unit.empty() && number * factor < 1e6)  // no process is that small
    fail(ErrorCode::kUsage, "'{}' without a unit is so many bytes; {}MB if that is meant", text, text);
  return int64_t(number * factor);
}

void set_budget(CompileOptions& options, const std::string& text, int64_t at_start) {
  if (text.empty()) return;
  const int64_t budget = parse_bytes(text);
  if (options.plan.device != DeviceKind::kCpu) {
    options.memory_budget = budget;  // of the card: what the plan says is what is allocated
    return;
  }
  // What this plan may take so that plan, empty process and program together stay below, by a wrong prediction too.
  options.process_bytes = at_start + kProgramBytes;
  options.memory_budget = int64_t(double(budget) / kPredictionMargin) - options.process_bytes;
  if (options.memory_budget == 0) options.memory_budget = -1;  // 0 is no limit
  options.most_resident = most_resident_bytes;
  options.memory_margin = kPredictionMargin;
}

void check_budget(const std::string& text) {
  if (text.empty()) return;
  const int64_t budget = parse_bytes(text), taken = most_resident_bytes();
  if (taken > budget)
    fail(ErrorCode::kResource, "the process took {} bytes, more than the budget of {}: the prediction was wrong", taken,
         budget);
}

}  // namespace ridgeline::cli
