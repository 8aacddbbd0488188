// Where to work next: steps ranked by what can still be won, with the lever that helps and the one that would not.
#pragma once

#include <string>
#include <vector>

#include "session/ladder.h"

namespace ridgeline {

struct Advice {
  const Step* step = nullptr;
  std::vector<std::string> nodes;
  std::string op, problem;
  double time_ms = 0, share = 0;  // of the total
  double family_share = 0;        // of its family's time
  std::string bound;
  double roof_share = 0;
  std::string lever, wrong_lever;  // with the arithmetic
  double predicted_gain_ms = 0;
  bool worth = false;  // 5 % of the total and more
  std::string code;    // on a GPU, of what its arithmetic binds: the matrix instructions that its code has
};

/// At most ten, by time x (1 - share of roof).
std::vector<Advice> advise(const std::vector<StepProfile>& profile, const Ceilings& ceilings);
std::string advice_text(const std::vector<Advice>& advice, const Ceilings& ceilings);

/// The levers for one problem, by its bound: also what `cost` prints.
struct Levers {
  std::string bound;
  std::vector<std::string> right, wrong;
};
Levers levers_for(const Problem& problem, const Cost& cost, const Ceilings& ceilings, int threads);

}  // namespace ridgeline
