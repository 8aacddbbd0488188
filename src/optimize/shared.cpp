#include <algorithm>
#include <cmath>

#include "kernels/kernel.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

Extents extents_at_one(const Graph& graph, ValueId v) {
  Bindings ones;
  for (const std::string& s : graph.symbols()) ones[s] = 1;
  Extents out;
  for (const Dim& d : graph.value(v).shape()) {
    const Dim bound = d.bind(ones);
    out.push_back(bound.known() ? std::max<int64_t>(bound.value(), 0) : 1);
  }
  return out;
}

}  // namespace

std::vector<std::string> origins(std::initializer_list<const Node*> nodes) {
  std::vector<std::string> names;
  for (const Node* node : nodes) {
    const std::vector<std::string> own = node->origin.empty() ? std::vector<std::string>{node->name} : node->origin;
    for (const std::string& name : own)
      if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return names;
}

bool one_step(const Graph& graph, const Node& node, const std::vector<NodeId>& more) {
  constexpr size_t kMost = 256;  // real graphs stay below 50
  size_t count = std::max<size_t>(1, node.origin.size());
  for (const NodeId id : more) count += std::max<size_t>(1, graph.node(id).origin.size());
  return count <= kMost;
}

void add_origin(Node& node, const Node& from) { node.origin = origins({&node, &from}); }

int64_t value_bytes(const Graph& graph, ValueId v) {
  if (v == kNoValue || !graph.value(v).info.shape) return 0;
  return bytes_of(graph.value(v).dtype(), element_count(extents_at_one(graph, v)));
}

int64_t node_flops(const Graph& graph, const Node& node) {
  Problem p;
  p.op = node.op;
  p.attributes = node.attributes;
  p.op_inputs = node.op_inputs;
  p.program = node.program;
  for (ValueId v : node.inputs) {
    Operand o;
    if (v != kNoValue && graph.value(v).info.shape) {
      o.dtype = graph.value(v).dtype();
      o.layout = Layout(extents_at_one(graph, v));
      if (const Tensor* c = graph.constant(v)) o.constant = *c;
    }
    p.inputs.push_back(o);
  }
  for (ValueId v : node.outputs) {
    Operand o;
    if (v != kNoValue && graph.value(v).info.shape) {
      o.dtype = graph.value(v).dtype();
      o.layout = Layout(extents_at_one(graph, v));
    }
    p.outputs.push_back(o);
  }
  return cost_of(p).flops;
}

bool reads_shape_only(const Node& user) { return user.is("Shape") || user.is("Size"); }

int content_uses(const Graph& graph, ValueId value) {
  const std::vector<NodeId>& users = graph.users(value);
  return int(std::count_if(users.begin(), users.end(), [&](NodeId u) { return !reads_shape_only(graph.node(u)); })) +
         (graph.value(value).is_output ? 1 : 0);
}

void release_unread(Graph& graph, ValueId constant) {
  if (graph.constant(constant) && graph.uses(constant) == 0) graph.value(constant).info.constant = {};
}

std::vector<int64_t> permutation_of(const Graph& graph, const Node& transpose) {
  std::vector<int64_t> perm = transpose.attributes.integers("perm");
  if (perm.empty())
    for (int a = graph.value(transpose.input(0)).rank(); a-- > 0;) perm.push_back(a);
  return perm;
}

std::optional<double> uniform_constant(const Graph& graph, ValueId v) {
  const Tensor* t = graph.constant(v);
  if (!t || !is_float(t->dtype()) || t->elements() == 0) return std::nullopt;
  const double first = t->f64(0);
  for (int64_t i = 1, count = t->elements(); i < count; ++i)
    if (t->f64(i) != first) return std::nullopt;
  return first;
}

namespace {

// As it could be asked of a kernel: images row-major, or all with the channels innermost.
Problem problem_of(const Graph& graph, const Node& node, const std::shared_ptr<const Program>& program,
                   const std::vector<ValueId>& inputs, int op_inputs, bool channels_last) {
  const auto operand_of = [&](ValueId v) {
    Operand o;
    if (v == kNoValue) return o;
    o.dtype = graph.value(v).dtype();
    const Extents shape = extents_at_one(graph, v);
    const Tensor* c = graph.constant(v);
    o.layout = channels_last && !c && shape.size() == 4 ? Layout::channels_last(shape) : Layout(shape);
    if (c) {
      o.constant = *c;
      o.is_constant = true;
    }
    return o;
  };
  Problem p;
  p.op = node.op;
  p.attributes = node.attributes;
  p.op_inputs = op_inputs;
  p.program = program;
  p.device = graph.target;
  for (ValueId v : inputs) p.inputs.push_back(operand_of(v));
  for (ValueId v : node.outputs) p.outputs.push_back(operand_of(v));
  return p;
}

}  // namespace

std::string why_no_kernel(const Graph& graph, const Node& node, const std::shared_ptr<const Program>& program,
                          const std::vector<ValueId>& inputs, int op_inputs) {
  std::string reason = "no kernel is registered";
  for (const bool channels_last : {false, true}) {
    const Problem p = problem_of(graph, node, program, inputs, op_inputs, channels_last);
    for (const Kernel* k : kernels_of(node.op->is_elementwise() ? "Elementwise" : node.op->name, graph.target)) {
      if (k->name.find("reference") != std::string_view::npos) continue;
      const Support support = k->supports(p);
      if (support.ok) return "";
      reason = fmt::format("{}: {}", k->name, support.reason);
    }
  }
  return reason;
}

}  // namespace ridgeline
