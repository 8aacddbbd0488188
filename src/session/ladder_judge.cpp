#include "session/ladder_judge.h"

#include <algorithm>
#include <cmath>

namespace ridgeline {
namespace {

constexpr double kNoise = 0.005;  // paired medians of one plan against itself differ by up to half a percent here
constexpr double kChance = 0.05;  // what a fair coin may do by itself

// How often a fair coin shows one side at least `heads` times in `tosses`.
double at_least(int heads, int tosses) {
  double sum = 0;
  for (int k = heads; k <= tosses; ++k)
    sum += std::exp(std::lgamma(tosses + 1.0) - std::lgamma(k + 1.0) - std::lgamma(tosses - k + 1.0) -
                    double(tosses) * std::log(2.0));
  return sum;
}

// Each rewrite's part of what was measured of its pass.
void share(std::vector<Decision>& decisions, double gain_us) {
  double predicted = 0;
  for (const Decision& d : decisions) predicted += d.predicted_gain_us;
  for (Decision& d : decisions)
    d.measured_gain_us = gain_us * (predicted > 0 ? d.predicted_gain_us / predicted : 1.0 / double(decisions.size()));
}

}  // namespace

std::string Comparison::text() const {
  return fmt::format("time {:+.1f} %, {} in {} of {} rounds", (ratio - 1) * 100, ratio < 1 ? "faster" : "slower",
                     ratio < 1 ? faster : slower, rounds);
}

Comparison compare_paired(const Samples& a, const Samples& b) {
  Comparison c;
  c.rounds = std::min(a.count(), b.count());
  for (int i = 0; i < c.rounds; ++i) {
    c.slower += b.times_ns()[size_t(i)] > a.times_ns()[size_t(i)];
    c.faster += b.times_ns()[size_t(i)] < a.times_ns()[size_t(i)];
  }
  if (c.rounds == 0) return c;
  c.ratio = median_ratio(b, a);
  c.clearly_slower = c.ratio > 1 + kNoise && at_least(c.slower, c.rounds) <= kChance;
  c.clearly_faster = c.ratio < 1 - kNoise && at_least(c.faster, c.rounds) <= kChance;
  return c;
}

bool same_plan(const Plan& a, const Plan& b) {
  if (a.steps.size() != b.steps.size() || a.arena_bytes != b.arena_bytes) return false;
  for (size_t s = 0; s < a.steps.size(); ++s) {
    if (a.steps[s].call.kernel != b.steps[s].call.kernel || !(a.steps[s].call.tile == b.steps[s].call.tile))
      return false;
  }
  return a.text() == b.text();
}

std::vector<Decision> undone_decisions(const std::vector<Decision>& all, std::string_view pass,
                                       const Comparison& with_it, double before_us, std::string_view stage) {
  std::vector<Decision> undone;
  for (const Decision& d : all)
    if (d.pass == pass && d.action == Action::kApplied) undone.push_back(d);
  for (Decision& d : undone) {
    d.action = Action::kUndone;
    d.reason_code = with_it.clearly_slower ? "slower" : "no_gain";
    d.reason = fmt::format("measured in stage '{}' with all rewrites of the pass: {}{}; undone", stage, with_it.text(),
                           with_it.clearly_slower ? "" : ", no gain beyond noise");
  }
  if (!undone.empty()) share(undone, (1 - with_it.ratio) * before_us);
  return undone;
}

void share_gain(std::vector<Decision>& decisions, std::string_view pass, double gain_us) {
  std::vector<Decision> own;
  for (const Decision& d : decisions)
    if (d.pass == pass && d.action == Action::kApplied) own.push_back(d);
  if (own.empty()) return;
  share(own, gain_us);
  size_t next = 0;
  for (Decision& d : decisions)
    if (d.pass == pass && d.action == Action::kApplied) d.measured_gain_us = own[next++].measured_gain_us;
}

}  // namespace ridgeline
