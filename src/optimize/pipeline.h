// The pipeline: every pass by name, in order, each timed, verified after, and switchable.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "optimize/decision.h"

namespace ridgeline {

enum class Stage : uint8_t { kUnfused, kEpilogues, kResiduals, kWholeGraph };
inline constexpr int kStageCount = 4;
std::string_view name(Stage stage);  // "unfused", "epilogues", "residuals", "whole graph"

/// kExact: same bits. kReorders: other rounding within the derived tolerance. kLossy: another formula or precision; off
/// unless named.
enum class PassClass : uint8_t { kExact, kReorders, kLossy };
std::string_view name(PassClass pass_class);

struct Pass {
  std::string_view name;
  Stage stage;  // the first stage of the ladder that has it
  PassClass pass_class;
  std::string_view what;  // one line
  void (*run)(Graph&, Decisions&);
};

/// In the order in which they run.
std::span<const Pass> passes();
const Pass* find_pass(std::string_view name);

struct PipelineOptions {
  Stage stage = Stage::kWholeGraph;  // passes of later stages are left out
  std::set<std::string, std::less<>> disabled;
  std::set<std::string, std::less<>> only;   // if not empty: these alone (and what every stage needs: constant folding)
  std::set<std::string, std::less<>> lossy;  // lossy passes that run beside the others
  std::set<std::string, std::less<>> undone_nodes;  // "pass/node": single rewrites that measured slower
  /// Of a pass that is named here, these roots alone are rewritten: layers that a precision file lowers.
  std::map<std::string, std::set<std::string, std::less<>>, std::less<>> only_nodes;
  bool none = false;  // no pass at all
  // Keep the graph before each pass until it is verified, so that an unsound one can be rolled back. Without, weights
  // that a pass replaces are freed at once, and an unsound pass is an error that names it.
  bool rollback = true;
  int most_rewrites = -1;  // stop after so many applied rewrites (bisection); -1: no limit
};

struct PassTime {
  std::string_view pass;
  int64_t time_ns;
};
/// Runs the passes on `graph` in place. A pass that leaves the graph unsound is rolled back and reported as a decision.
std::vector<PassTime> run_passes(Graph& graph, const PipelineOptions& options, Decisions& decisions);

}  // namespace ridgeline
