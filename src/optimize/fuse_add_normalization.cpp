// Add followed by LayerNormalization or RMSNormalization becomes one step with two results: the normalized value, and
// the sum where something else still reads it (pre-norm transformers).
#include "optimize/passes.h"

namespace ridgeline {
namespace {

// A constant operand that only lacks leading extents of 1 (a table of positions [S, D] beside [1, S, D]), with them.
ValueId in_shape_of(Graph& graph, ValueId operand, ValueId sum) {
  const Tensor* c = graph.constant(operand);
  const Shape& shape = graph.value(sum).shape();
  if (!c || graph.value(operand).shape() == shape || !known(shape) || c->elements() != element_count(extents(shape)))
    return operand;
  return graph.add_constant(graph.value(operand).name, c->reshaped(extents(shape)));
}

}  // namespace

void fuse_add_normalization(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    Node& norm = graph.node(id);
    const bool layer = norm.alive && norm.is("LayerNormalization"), rms = norm.alive && norm.is("RMSNormalization");
    if ((!layer && !rms) || norm.program || norm.outputs.size() != 1) continue;
    const OpSchema* fused = find_op(layer ? "AddLayerNormalization" : "AddRMSNormalization", "ridgeline");
    Node* add = graph.producer(norm.input(0));
    if (!fused || !add) continue;
    if (!add->is("Add") || add->program) {
      decisions.refuse(norm, "no_add",
                       fmt::format("its input '{}' is not a plain Add", graph.value(norm.input(0)).name));
      continue;
    }
    const ValueId sum = add->output(), y = norm.output();
    const ValueId a = in_shape_of(graph, add->input(0), sum), b = in_shape_of(graph, add->input(1), sum);
    // A constant operand (a table of positions) is as good as another: where it could be an epilogue of the step
    // before, it has become one by now.
    if (graph.value(a).shape() != graph.value(b).shape() || graph.value(a).dtype() != DType::kF32) {
      decisions.refuse(norm, "broadcasts_up",
                       fmt::format("the operands {} and {} of the Add broadcast", text(graph.value(a).shape()),
                                   text(graph.value(b).shape())));
      continue;
    }
    const bool sum_lives = graph.uses(sum) > 1;
    Attributes attributes = norm.attributes;
    std::vector<ValueId> inputs = {a, b};
    for (int i = 1; i < norm.op_inputs; ++i) inputs.push_back(norm.input(i));
    Node probe;
    probe.op = fused;
    probe.attributes = attributes;
    probe.outputs = {y, sum_lives ? sum : kNoValue};
    if (const std::string why = why_no_kernel(graph, probe, nullptr, inputs, int(inputs.size())); !why.empty()) {
      decisions.refuse(norm, "no_kernel", why);
      continue;
    }
    if (!decisions.allowed(norm)) continue;
    const std::vector<std::string> names = origins({add, &norm});
    const int64_t bytes = value_bytes(graph, sum) * (sum_lives ? 1 : 2);
    const NodeId both = graph.add_node(*fused, inputs, attributes, sum_lives ? 2 : 1, {}, norm.name);
    graph.node(both).origin = names;
    graph.replace_uses(y, graph.node(both).output(0));
    graph.remove(norm);
    if (sum_lives) graph.replace_uses(sum, graph.node(both).output(1));
    graph.remove(*add);
    decisions.apply(names, bytes, 1);
  }
}

}  // namespace ridgeline
