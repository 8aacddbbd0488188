// The matcher: an operator's decomposition read backwards. Inputs of the traced decomposition are holes that bind to
// values of the graph; named numbers ("@epsilon") bind to scalar constants; interior values must have no other reader.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

/// A traced, canonical decomposition.
struct Pattern {
  const OpSchema* op = nullptr;
  Attributes attributes;   // structural ones, by which it was traced
  Graph graph;             // inputs are the holes, in the operator's order
  std::vector<int> holes;  // graph.inputs[i] is the operator's input holes[i] (optional ones may be absent)
  int inputs = 0;          // the operator's inputs
};

/// What a hole is bound to: a value, seen through a permutation of its axes (empty: as it is).
struct BoundHole {
  ValueId value = kNoValue;
  std::vector<int64_t> perm;
};

struct Match {
  std::map<ValueId, BoundHole> holes;            // pattern input -> graph value
  std::map<std::string, double> numbers;         // attribute -> value
  std::vector<NodeId> nodes;                     // of the graph, root first
  std::vector<std::pair<NodeId, NodeId>> pairs;  // pattern node, graph node
};

/// Why a pattern that fits in structure may not be used here.
struct Mismatch {
  std::string code, reason;
};

/// The pattern rooted at the graph value `root`. `mismatch` is set if the structure fits but an interior value is
/// needed elsewhere.
std::optional<Match> match(const Pattern& pattern, const Graph& graph, ValueId root, Mismatch& mismatch);

/// Every pattern of the catalogue's composites, largest first: each spelling, traced with the ranks and structural
/// attributes of the operator's samples. Traced once.
const std::vector<Pattern>& composite_patterns();

}  // namespace ridgeline
