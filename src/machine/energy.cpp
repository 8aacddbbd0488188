#include "machine/energy.h"

#include <filesystem>
#include <fstream>

namespace ridgeline {
namespace {

std::optional<uint64_t> number_in(const std::string& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  return in >> value ? std::optional(value) : std::nullopt;
}

}  // namespace

EnergyMeter::EnergyMeter(const std::string& root) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(root, error)) {
    const std::string name = entry.path().filename();
    // Packages are intel-rapl:N; intel-rapl:N:M are parts of them.
    if (!name.starts_with("intel-rapl:") || name.find(':', 11) != std::string::npos) continue;
    Counter counter;
    counter.file = entry.path() / "energy_uj";
    if (!number_in(counter.file)) continue;
    counter.range_uj = number_in(entry.path() / "max_energy_range_uj").value_or(0);
    counters_.push_back(std::move(counter));
  }
  start();
}

void EnergyMeter::start() {
  for (Counter& c : counters_) c.start_uj = number_in(c.file).value_or(0);
}

std::optional<double> EnergyMeter::joules() const {
  if (counters_.empty()) return std::nullopt;
  uint64_t total_uj = 0;
  for (const Counter& c : counters_) {
    const std::optional<uint64_t> now = number_in(c.file);
    if (!now) return std::nullopt;
    total_uj += *now >= c.start_uj ? *now - c.start_uj : *now + c.range_uj - c.start_uj;
  }
  return double(total_uj) / 1e6;
}

}  // namespace ridgeline
