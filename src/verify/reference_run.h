// A graph on the declarations' own references, node by node in double: what everything else is compared with.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

struct ReferenceRun {
  int threads = 1;
  /// Sees every value as it is computed (graph inputs and constants too).
  std::function<void(ValueId, const Tensor&)> observe;
  /// What to go on with instead of a value, after it was observed; an empty tensor: itself.
  std::function<Tensor(ValueId, const Tensor&)> replace;
};

/// The outputs, in the graph's order. Inputs in the graph's order. Symbols need not be bound: shapes follow from the
/// inputs. A value is released after its last use.
std::vector<Tensor> run_reference(const Graph& graph, const std::vector<Tensor>& inputs,
                                  const ReferenceRun& options = {});

/// Inputs by name in the graph's order. Throws Error{kBadInput} that names the one that is missing.
std::vector<Tensor> inputs_in_order(const Graph& graph, const std::map<std::string, Tensor>& feeds);

/// The extents that the inputs give to the symbols in the graph's input shapes. Throws Error{kBadInput} where type,
/// rank or extent disagree, naming the input.
Bindings bindings_of(const Graph& graph, const std::vector<Tensor>& inputs);

}  // namespace ridgeline
