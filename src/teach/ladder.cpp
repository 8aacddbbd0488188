#include "teach/ladder.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <stdexcept>

#include "tune/probes.h"

namespace ridgeline::teach {
namespace {

constexpr int kLeastRounds = 3;
constexpr double kSliceNs = 2e7, kWindowNs = 2e5;
// Sums of a few thousand products in f32, in whatever order: far above what rounding does, far below any mistake.
constexpr double kAllowed = 1e-4;

void check(const Task& task) {
  for (const Way& way : task.ways) {
    way.poison();
    way.run();
    const double off = way.furthest_value();
    if (!(off <= kAllowed))
      throw std::logic_error(fmt::format("{}: '{}' is wrong by {} of the largest value", task.problem, way.name, off));
  }
}

}  // namespace

std::vector<Row> climb(const Task& task, double seconds, const std::function<void(int round)>& progress) {
  check(task);
  const size_t count = task.ways.size();
  std::vector<Row> rows;
  std::map<int, PeakProbe> probes;
  for (const Way& way : task.ways) {
    rows.push_back({&way});
    probes.try_emplace(way.threads, f32_peak(way.threads));
  }
  std::vector<Samples> windows(count), rounds(count);
  const int64_t start = now_ns();
  for (int round = 0; round < kLeastRounds || double(now_ns() - start) < seconds * 1e9; ++round) {
    if (progress) progress(round);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = round % 2 ? count - 1 - i : i;
      // A way of half a second is one call, one of a millisecond a slice of 20 ms, its first call not counted.
      const bool slow = rows[at].samples.count() > 0 && rows[at].samples.median() > kSliceNs;
      const Samples some = measure(
          task.ways[at].run, {.min_seconds = kSliceNs / 1e9, .min_samples = 1, .warmup_seconds = slow ? 0.0 : 0.002});
      for (const double ns : some.times_ns()) rows[at].samples.add(ns);
      rounds[at].add(some.median());
      windows[at].add(probes.at(task.ways[at].threads)(kWindowNs));
    }
  }
  for (size_t i = 0; i < count; ++i) {
    Row& row = rows[i];
    row.gop_s = double(task.flops) / row.samples.median();
    row.roof_gop_s = windows[i].median();
    if (i == 0) continue;
    row.gain = median_ratio(rounds[i - 1], rounds[i]);
    const int all = rounds[i].count();
    int faster = 0;
    for (int r = 0; r < all; ++r) faster += rounds[i].times_ns()[size_t(r)] < rounds[i - 1].times_ns()[size_t(r)];
    row.clear = std::max(faster, all - faster) * 4 >= all * 3;
  }
  return rows;
}

}  // namespace ridgeline::teach
