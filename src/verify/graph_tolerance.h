// How far a value of a graph may be from its reference: derived per operator and accumulated along the graph
// (docs/numerics.md).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

/// By what lossy passes round: operands, or everything that is stored between two operators.
struct Rounding {
  double unit = 0;  // unit roundoff, or half a step of integers
  bool stored = false;
};

/// What a run on the reference tells of quantized values.
struct QuantizedValues {
  Rounding rounding;                // by lossy passes
  std::map<ValueId, double> level;  // one level of a QuantizeLinear's result, relative to its largest value
  std::set<ValueId> restarted;      // where the run went on from the values under test: they are exact from there
};

/// Of every value, relative to its largest magnitude (as max_error measures): an operator passes its inputs' errors on,
/// by what it does to them, and adds its own. Open symbols count as 1. 0 for constants, inputs and what is computed
/// exactly.
std::vector<double> value_tolerances(const Graph& graph, const Bindings& bindings = {},
                                     const QuantizedValues& quantized = {});

/// Of these lossy passes: the unit roundoff of bf16 or f16, half a step of 127 levels.
Rounding rounding_of(const std::set<std::string, std::less<>>& lossy);

/// The largest over the graph's outputs.
double graph_tolerance(const Graph& graph, const Bindings& bindings = {}, const Rounding& rounding = {});

}  // namespace ridgeline
