// Nodes that change nothing: Identity, Dropout at inference, casts to the same type, moves that move nothing.
#include <numeric>

#include "optimize/passes.h"

namespace ridgeline {
namespace {

bool same_shape(const Graph& graph, const Node& node) {
  const ValueInfo &in = graph.value(node.input(0)).info, &out = graph.value(node.output()).info;
  return in.shape && out.shape && *in.shape == *out.shape && in.dtype == out.dtype;
}

bool changes_nothing(const Graph& graph, const Node& node) {
  if (node.program || node.inputs.empty() || node.input(0) == kNoValue || node.output() == kNoValue) return false;
  if (node.is("Identity")) return true;
  if (node.is("Dropout")) {
    const Tensor* training = node.input(2) == kNoValue ? nullptr : graph.constant(node.input(2));
    const bool inference = node.input(2) == kNoValue || (training && training->elements() == 1 && !training->i64(0));
    return inference && (node.output(1) == kNoValue || graph.uses(node.output(1)) == 0);
  }
  if (node.is("Cast") || node.is("Reshape") || node.is("Expand") || node.is("Flatten") || node.is("Squeeze") ||
      node.is("Unsqueeze"))
    return same_shape(graph, node);
  if (node.is("Concat") || node.is("Sum") || node.is("Max") || node.is("Min")) return node.inputs.size() == 1;
  if (node.is("Transpose")) {
    const std::vector<int64_t> perm = node.attributes.integers("perm");
    if (perm.empty()) return graph.value(node.input(0)).info.shape && graph.value(node.input(0)).rank() < 2;
    for (size_t a = 0; a < perm.size(); ++a)
      if (perm[a] != int64_t(a)) return false;
    return true;
  }
  return false;
}

}  // namespace

void eliminate_identities(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    Node& node = graph.node(id);
    if (!node.alive || !changes_nothing(graph, node) || !decisions.allowed(node)) continue;
    const ValueId in = node.input(0), out = node.output();
    decisions.apply(origins({&node}), 2 * value_bytes(graph, out), 1);
    graph.replace_uses(out, in);
    graph.remove(node);
  }
  graph.remove_dead();
}

}  // namespace ridgeline
