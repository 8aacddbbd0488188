#include "session/strategy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace ridgeline {
namespace {

constexpr std::array<std::string_view, 3> kNames = {"greedy", "cost", "exhaustive"};
// Rewrites that join steps; what only respells a graph or folds constants is never worse.
constexpr std::array<std::string_view, 6> kFusions = {"match_composites", "fuse_epilogues",    "fuse_add_normalization",
                                                      "fuse_residuals",   "merge_projections", "fuse_elementwise"};
constexpr int kMostSweeps = 3;  // of kCost over all rewrites; the second changed nothing on the five models compared

class Chooser {
 public:
  Chooser(const Model& model, const CompileOptions& options) : model_(model), options_(options) {}

  /// Predicted time with these rewrites left out; `applied`: what the fusion passes did then.
  double predicted(const std::set<std::string, std::less<>>& undone, std::vector<std::string>* applied = nullptr) {
    ++plans;
    Graph graph = model_.graph;
    PipelineOptions pipeline = options_.pipeline;
    pipeline.undone_nodes.insert(undone.begin(), undone.end());
    Decisions decisions;
    run_passes(graph, pipeline, decisions);
    PlanOptions plan_options = plan_options_for(pipeline, options_.plan);
    plan_options.bindings = model_.bindings;
    if (!plan_options.ceilings) plan_options.ceilings = cached_ceilings();
    const Plan plan = dry_plan(graph, plan_options, plan_options.ns_per_byte);
    if (applied) {
      for (const Decision& d : decisions.all) {
        if (d.action != Action::kApplied || std::count(kFusions.begin(), kFusions.end(), d.pass) == 0) continue;
        const std::string key = d.pass + "/" + d.root;
        if (std::find(applied->begin(), applied->end(), key) == applied->end()) applied->push_back(key);
      }
    }
    double ns = 0;
    for (const Step& step : plan.steps) ns += step.predicted_ns;
    return ns;
  }
  int plans = 0;

 private:
  const Model& model_;
  const CompileOptions& options_;
};

}  // namespace

Strategy parse_strategy(std::string_view given) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (given == kNames[i]) return Strategy(i);
  fail(ErrorCode::kUsage, "there is no strategy '{}'; there are: greedy, cost, exhaustive", given);
}

std::string_view name(Strategy strategy) { return kNames[size_t(strategy)]; }

StrategyResult choose_fusions(const Model& model, const CompileOptions& options, Strategy strategy,
                              const std::function<void(const std::string&)>& progress) {
  Chooser chooser(model, options);
  StrategyResult result;
  std::vector<std::string> rewrites;
  result.greedy_ns = result.chosen_ns = chooser.predicted({}, &rewrites);
  result.rewrites = int(rewrites.size());
  const auto consider = [&](const std::set<std::string, std::less<>>& undone) {
    const double ns = chooser.predicted(undone);
    if (progress && chooser.plans % 50 == 0)
      progress(fmt::format("{}: {} plans compared, {:.3f} ms predicted, greedy {:.3f}", name(strategy), chooser.plans,
                           result.chosen_ns / 1e6, result.greedy_ns / 1e6));
    if (ns >= result.chosen_ns) return false;
    result.chosen_ns = ns;
    result.undone = undone;
    return true;
  };
  if (strategy == Strategy::kCost) {
    bool changed = true;
    for (int sweep = 0; changed && sweep < kMostSweeps; ++sweep) {
      changed = false;
      for (const std::string& rewrite : rewrites) {
        std::set<std::string, std::less<>> next = result.undone;
        if (!next.insert(rewrite).second) next.erase(rewrite);
        changed = consider(next) || changed;
      }
    }
  } else if (strategy == Strategy::kExhaustive) {
    if (result.rewrites > kMostSubsetRewrites)
      fail(
          ErrorCode::kUsage,
          "--strategy exhaustive: {} rewrites have {:.0e} subsets; at most {} are tried out (--strategy cost takes any "
          "number)",
          result.rewrites, std::pow(2.0, result.rewrites), kMostSubsetRewrites);
    for (uint32_t subset = 1; subset < uint32_t(1) << rewrites.size(); ++subset) {
      std::set<std::string, std::less<>> undone;
      for (size_t i = 0; i < rewrites.size(); ++i)
        if (subset >> i & 1) undone.insert(rewrites[i]);
      consider(undone);
    }
  }
  result.plans = chooser.plans;
  return result;
}

}  // namespace ridgeline
