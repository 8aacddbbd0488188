// The tuner: every kernel and tile that can run a problem, measured against what the dispatcher takes.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "tune/duel.h"
#include "tune/prepared.h"

namespace ridgeline {

struct TrialRow {
  Candidate candidate;
  double time_ns = 0;      // least of the screening's medians; 0: not timed
  double estimate_ns = 0;  // by the model, if it prices this tile
  int rounds = 0;
};

struct TrialOptions {
  double seconds = 2;  // of measurement, at most, screening and duel together
  double margin = 0.02;
  uint64_t seed = 1;
  bool sweep = true;  // tiles that no estimate prices, too
};

/// What measuring a problem's candidates gave. Screening: slices of all in turn, those far behind fall out. Then the
/// fastest of the others duels with the incumbent, on fresh samples: the fastest of many is partly luck.
struct Trial {
  std::vector<TrialRow> rows;  // the incumbent is rows[incumbent]
  int incumbent = -1, challenger = -1;
  std::string incumbent_by;  // table, model or only
  Duel duel;                 // challenger against incumbent; empty if there is no challenger
  bool better() const { return challenger >= 0 && duel.verdict == Verdict::kFaster; }
  /// incumbent / best of both, at least 1: what the choice costs. 1 if the duel could not tell.
  double regret() const { return better() ? 1 / duel.ratio : 1; }
};

/// All that may be taken for a problem: each kernel with each of its tiles, no reference unless there is nothing else.
std::vector<Candidate> all_candidates(const Problem& problem, const Choice& choice, bool sweep);

/// `choice`: whose winner is the incumbent.
Trial try_all(const Problem& problem, const Choice& choice, const TrialOptions& options);

}  // namespace ridgeline
