// Operators of com.microsoft that no kernel runs as they stand become what their declarations say they are: a few of
// the standard's operators or of the library's own, which the other passes fuse and for which there are kernels.
#include "optimize/expand_contributed.h"

#include "ir/builder.h"
#include "kernels/kernel.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

/// Kernels are known by their operator's name: an operator that shares it with one of the standard (Attention,
/// RotaryEmbedding) has none of its own.
bool has_kernel(const OpSchema& op, DeviceKind device) {
  if (op.is_elementwise()) return true;
  if (find_op_in_any_domain(op.name) != &op) return false;
  for (const Kernel* kernel : kernels_of(op.name, device))
    if (kernel->name.find("reference") == std::string_view::npos) return true;
  return false;
}

void expand(Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  const NodeId first = graph.node_capacity();
  Builder builder(graph, *node.op, node.attributes, node.inputs);
  node.op->decompose[0](builder);
  const std::vector<ValueId>& results = builder.results();
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    if (node.outputs[o] == kNoValue) continue;
    if (o >= results.size() || results[o] == kNoValue)
      fail(ErrorCode::kUnsupported, "its output '{}' has no place in the decomposition", node.op->outputs[int(o)].name);
    const ValueInfo &from = graph.value(node.outputs[o]).info, &to = graph.value(results[o]).info;
    if (from.dtype != to.dtype || (from.shape && to.shape && from.shape->size() != to.shape->size()))
      fail(ErrorCode::kUnsupported, "the decomposition gives output '{}' another type", node.op->outputs[int(o)].name);
  }
  for (NodeId added = first; added < graph.node_capacity(); ++added) {
    Node& part = graph.node(added);
    part.origin = origins({&node});
    part.name = fmt::format("{}/{}_{}", node.name, part.op->name, added - first);
  }
  for (size_t o = 0; o < node.outputs.size(); ++o)
    if (node.outputs[o] != kNoValue) graph.replace_uses(node.outputs[o], results[o]);
  graph.remove(graph.node(id));
}

}  // namespace

void expand_contributed(Graph& graph, Decisions& decisions) {
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (!node.alive || node.program || node.op->domain != "com.microsoft" || node.op->decompose.empty() ||
        has_kernel(*node.op, graph.target))
      continue;
    if (!decisions.allowed(node)) continue;
    const std::vector<std::string> names = origins({&node});
    const NodeId first = graph.node_capacity();
    try {
      expand(graph, id);
    } catch (const Error& error) {
      // What was built up to there is read by nobody, or by what was built after it.
      for (NodeId added = graph.node_capacity(); added-- > first;)
        if (graph.node(added).alive) graph.remove(graph.node(added));
      decisions.refuse(node, "shape", error.what());
      continue;
    }
    decisions.apply(names, 0, 0);
  }
  graph.remove_dead();
}

}  // namespace ridgeline
