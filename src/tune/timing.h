// The one timing loop: warm-up apart, several runs interleaved so that noise hits all alike, median and spread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <vector>

namespace ridgeline {

inline int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1); }

/// Times of one call each, in ns, in the order they were taken.
class Samples {
 public:
  void add(double time_ns) { times_ns_.push_back(time_ns); }
  int count() const { return int(times_ns_.size()); }
  const std::vector<double>& times_ns() const { return times_ns_; }
  /// p in [0, 100], linear between neighbours; 0 if there are no samples.
  double percentile(double p) const;
  double median() const { return percentile(50); }
  double p10() const { return percentile(10); }
  double p90() const { return percentile(90); }
  double p99() const { return percentile(99); }
  double least() const { return percentile(0); }

 private:
  std::vector<double> times_ns_;
};

struct TimingOptions {
  double min_seconds = 0.2;      // measured, warm-up not counted; of all functions together if several
  int min_samples = 5;           // of each function
  int max_samples = 100000;      // of each function
  double warmup_seconds = 0.05;  // at least one call of each function
  /// A sample shorter than this is one of several calls: the clock itself takes about 25 ns.
  double min_sample_ns = 2000;
};

using TimedFunction = std::function<void()>;

Samples measure(const TimedFunction& function, const TimingOptions& options = {});
Samples measure(const TimedFunction& function, double min_seconds, int min_samples);

/// One call of each in turn, forwards then backwards, until `min_seconds` have passed: all see the same noise and
/// none always follows the same neighbour. Samples of one round have the same index, so they may be paired.
std::vector<Samples> measure_interleaved(const std::vector<TimedFunction>& functions,
                                         const TimingOptions& options = {});

/// The same for functions that know their own time: each call returns ns, and is one sample.
std::vector<Samples> measure_self_timed(const std::vector<std::function<double()>>& functions,
                                        const TimingOptions& options = {});

/// Median of the paired ratios a[i] / b[i]: what is left when a noise that hits both is taken out.
double median_ratio(const Samples& a, const Samples& b);

/// How many sets of buffers a benchmark cycles through, so that none is found in a cache: enough to exceed twice the
/// last cache, at least 1, and never more than `most_bytes` in all (an L3 may be shown as 480 MiB).
int rotation_count(int64_t bytes_per_set, int64_t last_cache_bytes, int64_t most_bytes = int64_t(3) << 29);

}  // namespace ridgeline
