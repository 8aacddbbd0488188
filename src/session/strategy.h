// Which of the legal fusions to apply: all of them, those that the cost model wants, or the best of all subsets.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "session/session.h"

namespace ridgeline {

/// kGreedy: every legal rewrite, in the order of the passes. kCost: from there, each rewrite is left out where the plan
/// without it is predicted to take less time, until none is. kExhaustive: every subset, for graphs of at most
/// kMostSubsetRewrites of them.
enum class Strategy : uint8_t { kGreedy, kCost, kExhaustive };
inline constexpr int kMostSubsetRewrites = 12;
Strategy parse_strategy(std::string_view name);  // throws Error{kUsage}
std::string_view name(Strategy strategy);

struct StrategyResult {
  std::set<std::string, std::less<>> undone;  // "pass/root", for PipelineOptions::undone_nodes
  int rewrites = 0, plans = 0;                // that greedy applies; plans that were compared
  double greedy_ns = 0, chosen_ns = 0;        // predicted time of the plans
};

/// Compares predicted times of plans that are not packed and never run. Throws Error{kUsage} if there are too many
/// rewrites for kExhaustive.
StrategyResult choose_fusions(const Model& model, const CompileOptions& options, Strategy strategy,
                              const std::function<void(const std::string&)>& progress = nullptr);

}  // namespace ridgeline
