// Operators that are functions of others and have no kernel of their own, as what they mean: an Einsum becomes
// transposes and products of matrices, a window becomes arithmetic. As they stand they have only the reference.
#include "optimize/expand_functions.h"

#include <algorithm>
#include <map>

#include "ir/builder.h"
#include "kernels/kernel.h"
#include "kernels/reference/reference.h"
#include "ops/catalogue.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

/// A kernel here or on the graph's device. Kernels are known by their operator's name: one of com.microsoft that shares
/// it with one of the standard (Attention, RotaryEmbedding) has none of its own.
bool has_kernel(const Graph& graph, const OpSchema& op) {
  if (find_op_in_any_domain(op.name) != &op) return false;
  for (const DeviceKind device : {DeviceKind::kCpu, graph.target}) {
    const auto kernels = kernels_of(op.name, device);
    if (std::any_of(kernels.begin(), kernels.end(), [](const Kernel* kernel) { return !is_reference(*kernel); }))
      return true;
  }
  return false;
}

bool shapes_known(const Graph& graph, const Node& node) {
  return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) {
    return v == kNoValue || (graph.value(v).info.shape && graph.value(v).dtype() != DType::kNone);
  });
}

/// The body's nodes in the place of the node.
void expand(Graph& graph, NodeId id, const Graph& body) {
  std::map<ValueId, ValueId> to;
  size_t next = 0;
  for (const ValueId v : graph.node(id).inputs)
    if (v != kNoValue) to[body.inputs[next++]] = v;
  const auto value = [&](ValueId v) {
    if (v == kNoValue) return v;
    const auto found = to.find(v);
    if (found != to.end()) return found->second;
    return to[v] = graph.add_constant(graph.fresh_name(graph.node(id).name + "/constant"), *body.constant(v));
  };
  for (const NodeId inner : body.order()) {
    const Node& from = body.node(inner);
    std::vector<ValueId> inputs;
    for (const ValueId v : from.inputs) inputs.push_back(value(v));
    const NodeId made = graph.add_node(*from.op, inputs, from.attributes, int(from.outputs.size()), {},
                                       fmt::format("{}/{}", graph.node(id).name, from.op->name));
    graph.node(made).origin = origins({&graph.node(id)});
    for (size_t o = 0; o < from.outputs.size(); ++o)
      if (from.outputs[o] != kNoValue) to[from.outputs[o]] = graph.node(made).output(int(o));
  }
  for (size_t o = 0; o < graph.node(id).outputs.size(); ++o) {
    const ValueId old = graph.node(id).outputs[o];
    if (old != kNoValue) graph.replace_uses(old, value(body.outputs[o]));
  }
  graph.remove(graph.node(id));
}

}  // namespace

void expand_functions(Graph& graph, Decisions& decisions) {
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (!node.alive || node.program || node.op->is_elementwise() || node.op->decompose.empty() ||
        has_kernel(graph, *node.op))
      continue;
    if (!shapes_known(graph, node)) {
      decisions.refuse(node, "unknown_shape", "the shape of an input is not known");
      continue;
    }
    std::vector<ValueInfo> infos;
    for (const ValueId v : node.inputs) infos.push_back(v == kNoValue ? ValueInfo() : graph.value(v).info);
    Graph body;
    try {
      body = decompose(*node.op, node.attributes, infos, int(node.outputs.size()));
    } catch (const Error& error) {
      decisions.refuse(node, "no_form", error.what());
      continue;
    }
    if (body.outputs.size() < node.outputs.size() || !decisions.allowed(node)) continue;
    const std::vector<std::string> names = origins({&node});
    expand(graph, id, body);
    decisions.apply(names, 0, 0);
  }
  graph.remove_dead();
}

}  // namespace ridgeline
