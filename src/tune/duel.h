// Which of two runs is faster? Paired and interleaved, with an interval, so that the answer may be "cannot tell".
#pragma once

#include <string_view>

#include "tune/timing.h"

namespace ridgeline {

enum class Verdict { kFaster, kSlower, kSame, kCannotTell };
std::string_view name(Verdict verdict);  // faster, slower, same, cannot tell

struct DuelOptions {
  double seconds = 1;    // at most, warm-up not counted
  double margin = 0.02;  // a difference below this is none
  int min_rounds = 15;   // fewer than 8 give no interval at 99 %
  int max_rounds = 400;
  double slice_ns = 1e6;  // a run of one side, or one call of it
};

/// `ratio`: median over the rounds of challenger / incumbent; with 99 % confidence it lies in [low, high] (order
/// statistics of the rounds: no distribution is assumed).
struct Duel {
  double ratio = 1, low = 0, high = 0;
  int rounds = 0;
  Verdict verdict = Verdict::kCannotTell;
  double challenger_ns = 0, incumbent_ns = 0;  // medians
};

/// Slices of both in turn, the first of each round alternating. Ends as soon as the interval lies on one side of the
/// margin, or within it.
Duel duel(const TimedFunction& challenger, const TimedFunction& incumbent, const DuelOptions& options = {});

/// The time of a call within one slice of at least three: that of the fastest fifth. Others on the machine only ever
/// make calls longer; by medians a host with twelve processes on two cores left intervals of 0.07 to 14.
double slice_time(const TimedFunction& function, double slice_ns);

/// The verdict on an interval: all below 1 - margin, all above 1 + margin, all between, or none of these.
Verdict judge(double low, double high, double margin);

}  // namespace ridgeline
