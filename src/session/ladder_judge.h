// When does the ladder believe a measurement? One judgement for all of its decisions, on paired samples.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "optimize/decision.h"
#include "plan/plan.h"
#include "tune/timing.h"

namespace ridgeline {

/// b beside a, from rounds in which both ran. "Clearly" needs both: a paired median beyond half a percent (a plan
/// against itself differs by up to that), and a sign test: so many rounds on one side that a fair coin would do it less
/// than once in twenty times (7 of 7, 9 of 10, 15 of 20).
struct Comparison {
  double ratio = 1;  // median of the paired b / a
  int rounds = 0, slower = 0, faster = 0;
  bool clearly_slower = false, clearly_faster = false;
  std::string text() const;  // "+3.1 %, slower in 11 of 12 rounds"
};
Comparison compare_paired(const Samples& a, const Samples& b);

/// Would the two do the same? Then one measurement serves both.
bool same_plan(const Plan& a, const Plan& b);

/// What `pass` had applied, as undone: one decision a rewrite, with its nodes. The measured gain is that of the pass,
/// shared among its rewrites as in share_gain. `before_us`: the time without it. A comparison that is not clear gives
/// the reason "no_gain", one that is "slower".
std::vector<Decision> undone_decisions(const std::vector<Decision>& all, std::string_view pass,
                                       const Comparison& with_it, double before_us, std::string_view stage);

/// What a pass gained in all, shared among its rewrites by their predicted gain.
void share_gain(std::vector<Decision>& decisions, std::string_view pass, double gain_us);

}  // namespace ridgeline
