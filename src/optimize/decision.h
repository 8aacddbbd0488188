// Decision: what a pass or the dispatcher did or refused to do, where, and why. `explain` only prints them.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

enum class Action : uint8_t { kApplied, kRefused, kUndone };
std::string_view name(Action action);

struct Decision {
  std::string pass;
  std::vector<std::string> nodes;  // names of the imported nodes
  std::string root;                // of an applied one: the node that the pass asked leave for ("pass/root" undoes it)
  Action action = Action::kApplied;
  std::string reason_code;  // "other_user", "graph_output", "training_mode", "broadcasts_up", ...; "" if applied
  std::string reason;       // and what would make it legal
  int64_t bytes_saved = 0;
  int launches_saved = 0;
  double intensity_before = 0, intensity_after = 0;    // FLOP per byte of the nodes together
  double predicted_gain_us = 0, measured_gain_us = 0;  // measured of the whole pass, shared as predicted
  int stage = 0;
};

class Decisions {
 public:
  std::vector<Decision> all;
  std::string pass;  // the one that runs now, and its stage; set by the pipeline
  int stage = 0;
  int most_applied = -1;
  int applied = 0;
  std::set<std::string, std::less<>> undone;                 // "pass/node"
  const std::set<std::string, std::less<>>* only = nullptr;  // the roots that this pass may rewrite; null: all
  std::string asked;                                         // the node of the last allowed()

  /// May this rewrite be applied (bisection limit, undone by measurement)? Asked before changing the graph.
  bool allowed(const Node& root);
  void apply(std::vector<std::string> nodes, int64_t bytes_saved, int launches_saved, double intensity_before = 0,
             double intensity_after = 0);
  void refuse(const Node& root, std::string_view code, const std::string& reason);
};

}  // namespace ridgeline
