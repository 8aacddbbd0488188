#include "tune/timing.h"

#include <algorithm>
#include <cmath>

namespace ridgeline {
namespace {

double percentile_of(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double position = std::clamp(p, 0.0, 100.0) / 100 * double(values.size() - 1);
  const size_t below = size_t(position);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (position - double(below)) * (values[above] - values[below]);
}

// Warm-up; returns how many calls make one sample.
int64_t warm_up(const TimedFunction& function, const TimingOptions& options, double seconds) {
  const int64_t start = now_ns();
  int64_t fastest = INT64_MAX;
  int64_t before = start;
  do {
    function();
    const int64_t after = now_ns();
    fastest = std::min(fastest, after - before);
    before = after;
  } while (double(before - start) < seconds * 1e9);
  if (double(fastest) >= options.min_sample_ns) return 1;
  return int64_t(std::ceil(options.min_sample_ns / double(std::max<int64_t>(fastest, 1))));
}

}  // namespace

double Samples::percentile(double p) const { return percentile_of(times_ns_, p); }

Samples measure(const TimedFunction& function, const TimingOptions& options) {
  return std::move(measure_interleaved({function}, options).front());
}

Samples measure(const TimedFunction& function, double min_seconds, int min_samples) {
  return measure(function, {.min_seconds = min_seconds, .min_samples = min_samples});
}

std::vector<Samples> measure_interleaved(const std::vector<TimedFunction>& functions, const TimingOptions& options) {
  const size_t count = functions.size();
  std::vector<Samples> samples(count);
  if (count == 0) return samples;
  std::vector<int64_t> calls(count);
  for (size_t f = 0; f < count; ++f) calls[f] = warm_up(functions[f], options, options.warmup_seconds / double(count));
  const int64_t start = now_ns();
  for (int round = 0; round < options.max_samples; ++round) {
    for (size_t i = 0; i < count; ++i) {
      const size_t f = round % 2 ? count - 1 - i : i;
      const int64_t before = now_ns();
      for (int64_t call = 0; call < calls[f]; ++call) functions[f]();
      samples[f].add(double(now_ns() - before) / double(calls[f]));
    }
    if (round + 1 >= options.min_samples && double(now_ns() - start) >= options.min_seconds * 1e9) break;
  }
  return samples;
}

std::vector<Samples> measure_self_timed(const std::vector<std::function<double()>>& functions,
                                        const TimingOptions& options) {
  const size_t count = functions.size();
  std::vector<Samples> samples(count);
  if (count == 0) return samples;
  constexpr int kWarmups = 3;
  for (const auto& function : functions)
    for (int i = 0; i < kWarmups; ++i) function();
  const int64_t start = now_ns();
  for (int round = 0; round < options.max_samples; ++round) {
    for (size_t i = 0; i < count; ++i) {
      const size_t f = round % 2 ? count - 1 - i : i;
      samples[f].add(functions[f]());
    }
    if (round + 1 >= options.min_samples && double(now_ns() - start) >= options.min_seconds * 1e9) break;
  }
  return samples;
}

double median_ratio(const Samples& a, const Samples& b) {
  const size_t count = std::min(a.times_ns().size(), b.times_ns().size());
  std::vector<double> ratios;
  ratios.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    if (b.times_ns()[i] > 0) ratios.push_back(a.times_ns()[i] / b.times_ns()[i]);
  }
  return percentile_of(std::move(ratios), 50);
}

int rotation_count(int64_t bytes_per_set, int64_t last_cache_bytes, int64_t most_bytes) {
  if (bytes_per_set <= 0) return 1;
  // So many sets of the smallest buffers are 16 MB: past every L2; a million of them took a gigabyte and a minute.
  constexpr int64_t most_sets = 1 << 14;
  const int64_t wanted = 2 * last_cache_bytes / bytes_per_set + 1;
  return int(std::clamp<int64_t>(std::min(wanted, most_bytes / bytes_per_set), 1, most_sets));
}

}  // namespace ridgeline
