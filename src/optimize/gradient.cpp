#include "optimize/gradient.h"

#include <algorithm>

#include "ir/builder.h"

namespace ridgeline {
namespace {

class Backward {
 public:
  explicit Backward(Graph& graph) : graph_(graph) {}

  void add(ValueId value, ValueId gradient) {
    if (value == kNoValue || gradient == kNoValue || !is_float(graph_.value(value).dtype())) return;
    grow();
    ValueId& sum = gradient_[size_t(value)];
    if (sum == kNoValue) {
      sum = gradient;
      return;
    }
    sum = graph_.node(graph_.add_node(*find_op("Add"), {sum, gradient})).output();
    grow();
  }
  ValueId of(ValueId value) {
    grow();
    return value == kNoValue ? kNoValue : gradient_[size_t(value)];
  }

  /// Nodes in topological order; only those that a gradient reaches and that lead to a source matter.
  void through(const std::vector<NodeId>& nodes) {
    for (size_t k = nodes.size(); k-- > 0;) through(nodes[k]);
  }

 private:
  void grow() { gradient_.resize(size_t(graph_.value_count()), kNoValue); }

  void through(NodeId id) {
    const Node node = graph_.node(id);  // a copy: nodes are added below
    std::vector<ValueId> from;
    bool reached = false;
    for (ValueId v : node.outputs) {
      from.push_back(of(v));
      reached = reached || from.back() != kNoValue;
    }
    if (!reached || std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return differentiable(v); }))
      return;
    if (node.op->gradient) return written(node, from);
    if (node.program || node.op->is_elementwise()) return elementwise(node, from);
    if (node.op->no_gradient.empty() && !node.op->decompose.empty()) return decomposed(node, from);
    refuse(node);
  }

  bool differentiable(ValueId v) const {
    return v != kNoValue && is_float(graph_.value(v).dtype()) && !graph_.value(v).is_constant();
  }

  [[noreturn]] void refuse(const Node& node) const {
    fail(ErrorCode::kUnsupported, "unsupported: node '{}' ({}) has no gradient: {}", node.name, node.op->name,
         node.op->no_gradient.empty() ? "none is declared" : node.op->no_gradient);
  }

  void written(const Node& node, const std::vector<ValueId>& from) {
    Gradient g(graph_, *node.op, node.attributes, node.inputs, node.outputs, from);
    node.op->gradient(g);
    for (size_t i = 0; i < node.inputs.size() && i < g.input_gradients().size(); ++i)
      add(node.inputs[i], g.input_gradients()[i]);
  }

  void elementwise(const Node& node, const std::vector<ValueId>& from) {
    const Program program = program_of(graph_, node);
    std::vector<ValueId> operands;
    for (ValueId v : node.inputs)
      if (v != kNoValue && operands.size() < program.inputs.size()) operands.push_back(v);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!differentiable(operands[i])) continue;
      for (size_t o = 0; o < from.size(); ++o) {
        if (from[o] == kNoValue) continue;
        std::optional<Program> slope = derivative(program, int(i), int(o));
        if (!slope) continue;
        std::vector<ValueId> inputs = operands;
        inputs.push_back(from[o]);
        const ValueId full = graph_.node(graph_.add_program(std::move(*slope), inputs)).output();
        Gradient g(graph_, *node.op, node.attributes, node.inputs, node.outputs, from);
        add(operands[i], g.unbroadcast({&g, full}, {&g, operands[i]}).id);
      }
    }
  }

  /// The decomposition's nodes are added, and differentiated in turn.
  void decomposed(const Node& node, const std::vector<ValueId>& from) {
    std::vector<ValueInfo> infos;
    for (ValueId v : node.inputs) infos.push_back(v == kNoValue ? ValueInfo{} : graph_.value(v).info);
    const Graph part = decompose(*node.op, node.attributes, infos, int(node.outputs.size()));
    std::vector<ValueId> here(size_t(part.value_count()), kNoValue);
    size_t next = 0;
    for (ValueId v : node.inputs)
      if (v != kNoValue) here[size_t(part.inputs[next++])] = v;
    std::vector<NodeId> added;
    auto map = [&](ValueId v) {
      if (v == kNoValue) return kNoValue;
      if (here[size_t(v)] == kNoValue && part.constant(v)) here[size_t(v)] = graph_.add_constant({}, *part.constant(v));
      return here[size_t(v)];
    };
    for (NodeId id : part.order()) {
      const Node& inner = part.node(id);
      std::vector<ValueId> inputs;
      for (ValueId v : inner.inputs) inputs.push_back(map(v));
      const NodeId copy = inner.program && inner.op->is_elementwise()
                              ? graph_.add_program(*inner.program, inputs)
                              : graph_.add_node(*inner.op, inputs, inner.attributes, int(inner.outputs.size()));
      for (size_t o = 0; o < inner.outputs.size(); ++o)
        if (inner.outputs[o] != kNoValue) here[size_t(inner.outputs[o])] = graph_.node(copy).output(int(o));
      added.push_back(copy);
    }
    for (size_t o = 0; o < from.size() && o < part.outputs.size(); ++o) add(map(part.outputs[o]), from[o]);
    through(added);
  }

  Graph& graph_;
  std::vector<ValueId> gradient_;
};

}  // namespace

std::vector<ValueId> add_gradients(Graph& graph, const std::vector<ValueId>& results,
                                   const std::vector<ValueId>& result_gradients, const std::vector<ValueId>& sources) {
  const std::vector<NodeId> order = graph.order();
  Backward backward(graph);
  for (size_t k = 0; k < results.size(); ++k) backward.add(results[k], result_gradients[k]);
  backward.through(order);
  std::vector<ValueId> gradients;
  for (ValueId v : sources) gradients.push_back(backward.of(v));
  return gradients;
}

}  // namespace ridgeline
