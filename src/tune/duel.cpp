#include "tune/duel.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace ridgeline {
namespace {

// The interval that holds the median with 99 % confidence: ranks n/2 -+ 2.58 sqrt(n)/2 (normal form of the binomial).
void set_interval(Duel& d, std::vector<double> ratios) {
  std::sort(ratios.begin(), ratios.end());
  const double n = double(ratios.size()), reach = 2.58 * std::sqrt(n) / 2;
  const auto rank = [&](double at) { return ratios[size_t(std::clamp(at, 0.0, n - 1))]; };
  d.ratio = (rank(std::floor((n - 1) / 2)) + rank(std::ceil((n - 1) / 2))) / 2;
  d.low = rank(std::floor(n / 2 - reach));
  d.high = rank(std::ceil(n / 2 + reach));
}

}  // namespace

std::string_view name(Verdict verdict) {
  constexpr std::string_view kNames[] = {"faster", "slower", "same", "cannot tell"};
  return kNames[int(verdict)];
}

double slice_time(const TimedFunction& function, double slice_ns) {
  constexpr size_t kLeastCalls = 3, kMostCalls = 4096;
  constexpr double kLongNs = 5e7;
  std::vector<double> times;
  const int64_t start = now_ns();
  int64_t before = start;
  const auto passed = [&] { return double(before - start); };
  do {
    function();
    const int64_t after = now_ns();
    times.push_back(double(after - before));
    before = after;
  } while ((passed() < slice_ns || (times.size() < kLeastCalls && passed() < kLongNs)) && times.size() < kMostCalls);
  const auto fifth = times.begin() + ptrdiff_t(times.size() / 5);
  std::nth_element(times.begin(), fifth, times.end());
  return *fifth;
}

Verdict judge(double low, double high, double margin) {
  if (high < 1 - margin) return Verdict::kFaster;
  if (low > 1 + margin) return Verdict::kSlower;
  return low >= 1 - margin && high <= 1 + margin ? Verdict::kSame : Verdict::kCannotTell;
}

Duel duel(const TimedFunction& challenger, const TimedFunction& incumbent, const DuelOptions& options) {
  Duel d;
  challenger();
  incumbent();
  std::vector<double> ratios;
  Samples ours, theirs;
  const int64_t start = now_ns();
  int look = options.min_rounds;  // a look after each round would find a difference where there is none: at doublings
  while (d.rounds < options.max_rounds) {
    double a = 0, b = 0;
    if (d.rounds % 2 == 0) a = slice_time(challenger, options.slice_ns);
    b = slice_time(incumbent, options.slice_ns);
    if (d.rounds % 2 != 0) a = slice_time(challenger, options.slice_ns);
    ++d.rounds;
    ours.add(a);
    theirs.add(b);
    ratios.push_back(a / std::max(b, 1.0));
    const bool late = double(now_ns() - start) > options.seconds * 1e9;
    if (d.rounds < look && !late) continue;
    look *= 2;
    if (d.rounds >= 8) {
      set_interval(d, ratios);
      d.verdict = judge(d.low, d.high, options.margin);
      if (d.verdict != Verdict::kCannotTell) break;
    }
    if (late && d.rounds >= 8) break;
    if (double(now_ns() - start) > options.seconds * 4e9) break;  // calls so long that eight rounds take ages
  }
  d.challenger_ns = ours.median();
  d.incumbent_ns = theirs.median();
  if (d.rounds < 8) {  // no interval: what was seen bounds it
    d.ratio = median_ratio(ours, theirs);
    d.low = 0, d.high = 1e9;
  }
  return d;
}

}  // namespace ridgeline
