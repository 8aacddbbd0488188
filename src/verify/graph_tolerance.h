// How far the outputs of a graph may be from the reference, derived from its operators.
#pragma once

#include "ir/graph.h"

namespace ridgeline {

/// Largest |y - reference| over largest |reference| that rounding explains. Each operator contributes
///   (ulps + 4 sqrt(n)) u,   u = half the epsilon of its type, n = terms of a sum (1 for elementwise work),
/// since n rounding errors of random sign grow as sqrt(n) and blocked sums stay below it (Higham, Accuracy and Stability of
/// Numerical Algorithms, 2nd ed., section 4.2); contributions add along the path with the largest sum, as if each layer passed
/// its input's relative error on unchanged. Exact graphs (moves, integers) give 0.
double graph_tolerance(const Graph& graph, const Bindings& bindings);

}  // namespace ridgeline
