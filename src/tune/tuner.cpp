#include "tune/tuner.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "kernels/reference/reference.h"
#include "machine/probe.h"

namespace ridgeline {
namespace {

constexpr int64_t kMostBytes = int64_t(1) << 30;  // of all sets of one problem's operands
constexpr double kFarBehind = 1.25, kBehind = 1.08;

using Runners = std::vector<std::unique_ptr<PreparedKernel>>;

// As many as rotate each candidate past the last cache, and no more than memory has room for: each way to pack a
// constant is one more copy of all of them (Winograd's three are 13 times the filters).
int rotated_sets(const Problem& problem, const std::vector<TrialRow>& rows) {
  const int64_t own = problem.read_bytes() + problem.write_bytes();
  int64_t all = own;
  std::set<std::string> packings;
  for (const TrialRow& row : rows) {
    const Candidate& c = row.candidate;
    for (size_t i = 0; c.kernel->packing && i < problem.inputs.size(); ++i) {
      if (!problem.inputs[i].is_constant) continue;
      const Packing packing = c.kernel->packing(problem, c.tile, int(i));
      if (!packing.key.empty() && packings.insert(fmt::format("{} {}", i, packing.key)).second) all += packing.bytes;
    }
  }
  const int wanted = rotation_count(own, this_cpu().caches.l3, kMostBytes);
  return int(std::clamp<int64_t>(kMostBytes / std::max<int64_t>(all, 1), 1, wanted));
}

// Rounds over those still in the field until `seconds` have passed; those behind fall out after rounds 2, 4 and 8.
void screen(std::vector<TrialRow>& rows, Runners& runners, int incumbent, double seconds) {
  std::vector<size_t> field(rows.size());
  for (size_t i = 0; i < field.size(); ++i) field[i] = i;
  for (const size_t i : field) runners[i]->run();
  const int64_t start = now_ns();
  for (int round = 1; round <= 64 && field.size() > 1; ++round) {
    for (size_t at = 0; at < field.size(); ++at) {
      const size_t i = field[round % 2 ? at : field.size() - 1 - at];
      const double ns = slice_time([&] { runners[i]->run(); }, 5e5);
      rows[i].time_ns = rows[i].rounds ? std::min(rows[i].time_ns, ns) : ns;
      ++rows[i].rounds;
    }
    const bool late = double(now_ns() - start) > seconds * 1e9;
    if (round == 2 || round == 4 || round == 8 || late) {
      double best = 0;
      for (const size_t i : field) best = best == 0 ? rows[i].time_ns : std::min(best, rows[i].time_ns);
      const double limit = best * (round < 4 ? kFarBehind : kBehind);
      std::erase_if(field, [&](size_t i) { return int(i) != incumbent && rows[i].time_ns > limit; });
    }
    if (late || round >= 16) break;
  }
}

}  // namespace

std::vector<Candidate> all_candidates(const Problem& problem, const Choice& choice, bool sweep) {
  std::vector<Candidate> out;
  const auto add = [&](const Candidate& given, const Tile& tile) {
    Candidate c = given;
    c.tile = tile;
    const bool there = std::any_of(out.begin(), out.end(), [&](const Candidate& other) {
      return other.kernel == c.kernel && other.tile == c.tile;
    });
    if (!there) out.push_back(std::move(c));
  };
  if (choice.chosen >= 0) add(choice.winner(), choice.winner().tile);
  for (const Candidate& c : choice.candidates) {
    if (!c.support.ok || is_reference(*c.kernel)) continue;
    for (const Tile& tile : c.kernel->tiles ? c.kernel->tiles(problem) : std::vector<Tile>{Tile{}}) add(c, tile);
    if (!sweep || !c.kernel->sweep) continue;
    for (const Tile& tile : c.kernel->sweep(problem)) add(c, tile);
  }
  return out;
}

Trial try_all(const Problem& given, const Choice& choice, const TrialOptions& options) {
  Trial trial;
  const Problem problem = with_weights(given, options.seed);
  for (Candidate& candidate : all_candidates(problem, choice, options.sweep)) {
    TrialRow row;
    row.candidate = std::move(candidate);
    trial.rows.push_back(std::move(row));
  }
  trial.incumbent = 0;  // all_candidates lists the winner first
  trial.incumbent_by = choice.chosen_by;
  if (trial.rows.size() < 2) return trial;
  SharedBuffers buffers(problem, rotated_sets(problem, trial.rows), options.seed);
  Runners runners(trial.rows.size());
  for (size_t i = 0; i < runners.size(); ++i)
    runners[i] = std::make_unique<PreparedKernel>(trial.rows[i].candidate, buffers);
  screen(trial.rows, runners, trial.incumbent, options.seconds / 2);
  for (size_t i = 0; i < trial.rows.size(); ++i) {
    const bool faster = trial.challenger < 0 || trial.rows[i].time_ns < trial.rows[size_t(trial.challenger)].time_ns;
    if (int(i) != trial.incumbent && faster) trial.challenger = int(i);
  }
  // Far behind in the screening already: no duel can turn that round.
  const TrialRow &best = trial.rows[size_t(trial.challenger)], &mine = trial.rows[size_t(trial.incumbent)];
  DuelOptions duel_options;
  duel_options.seconds = options.seconds / 2;
  duel_options.margin = options.margin;
  if (best.time_ns > mine.time_ns * kFarBehind) {
    trial.challenger = -1;
    return trial;
  }
  PreparedKernel &a = *runners[size_t(trial.challenger)], &b = *runners[size_t(trial.incumbent)];
  trial.duel = duel([&] { a.run(); }, [&] { b.run(); }, duel_options);
  return trial;
}

}  // namespace ridgeline
