// Gradients: a graph in smaller operators, from what the schemas declare. A schema writes its own, or it follows from
// its expression (differentiated forward, so that a select stays a select) or from its decomposition.
#pragma once

#include <optional>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

/// dy * d(output)/d(input): a program of the same inputs and, last, "dy". nullopt: zero everywhere. Throws
/// Error{kUnsupported} if it would exceed Program::kMostInstructions.
std::optional<Program> derivative(const Program& program, int input, int output = 0);

/// Adds to `graph` the gradients of `sources` from those of `results`; kNoValue for one that no result depends on
/// (smoothly). Throws Error{kUnsupported} that names the first node without a gradient on the way, and its schema's
/// reason.
std::vector<ValueId> add_gradients(Graph& graph, const std::vector<ValueId>& results,
                                   const std::vector<ValueId>& result_gradients, const std::vector<ValueId>& sources);

}  // namespace ridgeline
