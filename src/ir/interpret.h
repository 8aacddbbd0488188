// A graph on the declarations' own references, node by node: the meaning of a subgraph.
#pragma once

#include <functional>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

struct InterpretOptions {
  int threads = 1;
  /// Sees every value as it is computed (graph inputs and constants too).
  std::function<void(ValueId, const Tensor&)> observe;
  /// What to go on with instead of a value, after it was observed; an empty tensor: itself.
  std::function<Tensor(ValueId, const Tensor&)> replace;
  bool in_loop = false;  // a body: its values are bounded (LoopLimits)
};

/// run_reference (ir/reference.h) with a bound: Error{kResource} if an output would have more than `most_elements`.
std::vector<Tensor> run_reference_within(const OpSchema& op, const Attributes& attributes,
                                         const std::vector<Tensor>& inputs, int outputs, int threads,
                                         int64_t most_elements);

/// The outputs, in the graph's order, for inputs in the graph's order. Symbols need not be bound: shapes follow from
/// the inputs. A value is released after its last use.
std::vector<Tensor> interpret(const Graph& graph, const std::vector<Tensor>& inputs, const InterpretOptions& options);

}  // namespace ridgeline
