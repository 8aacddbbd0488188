// Measures the ceilings of the machine. Each is the best of at least 20 windows spread over at least 3 seconds, by the
// best known way (instruction set, number of streams, kind of store).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "machine/ceilings.h"

namespace ridgeline {

/// Called now and then while measuring: share done in [0, 1], and what is being measured.
using ProbeProgress = std::function<void(double done, const std::string& what)>;

/// The cached ceilings of this machine; measured (8 to 15 s, all cores) and cached if there are none or `measure` is
/// set. A cache that cannot be read or written is no error: then they are kept for the life of the process. Safe to
/// call from several threads and processes: one measures, the others wait for it.
Ceilings machine_ceilings(bool measure = false, const ProbeProgress& progress = {});

/// Always measures; touches no cache.
Ceilings measure_ceilings(const ProbeProgress& progress = {});

/// One ceiling, to be measured in windows beside a benchmark. Made by the functions below, which try the known ways and
/// keep the fastest. Copies share the buffers.
class PeakProbe {
 public:
  struct State;
  explicit PeakProbe(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Runs one window, of about 5 ms if not told; returns Gop/s, GB/s or elements/ns.
  double operator()(double window_ns = 5e6);
  /// Best of all windows so far.
  double best() const;
  const std::string& way() const;  // "avx512 fma", "1 stream", ...

 private:
  std::shared_ptr<State> state_;
};

PeakProbe compute_probe(DType dtype, int threads);
inline PeakProbe f32_peak(int threads) { return compute_probe(DType::kF32, threads); }
/// `bytes`: the working set of all threads together (copy: source plus target). The DRAM of this machine:
/// dram_probe_bytes().
PeakProbe read_probe(int64_t bytes, int threads);
PeakProbe copy_probe(int64_t bytes, int threads);
PeakProbe write_probe(int64_t bytes, int threads);
PeakProbe special_probe(SpecialFunction function, int threads);

/// A working set that no cache holds: four times the last cache, 1 to 2 GiB, at most a quarter of the free memory.
int64_t dram_probe_bytes();

}  // namespace ridgeline
