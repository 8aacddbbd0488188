// Energy that the processor packages used, where the kernel lets us read it (RAPL through powercap).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ridgeline {

/// Sum of the packages' counters, with their overflow taken into account. Source: Linux, Documentation/power/powercap.
class EnergyMeter {
 public:
  /// Looks in `root` for intel-rapl:N/energy_uj (AMD's processors have the same name there).
  explicit EnergyMeter(const std::string& root = "/sys/class/powercap");
  /// False if there is no counter, or it may not be read (since Linux 5.10 root alone may).
  bool available() const { return !counters_.empty(); }
  void start();
  /// Joules of all packages since `start`, by everything that ran on them; nothing if it is not available.
  std::optional<double> joules() const;

 private:
  struct Counter {
    std::string file;
    uint64_t range_uj = 0, start_uj = 0;
  };
  std::vector<Counter> counters_;
};

}  // namespace ridgeline
