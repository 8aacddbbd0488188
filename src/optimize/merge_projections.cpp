// Products that share their input and have constant weights (Q, K and V) become one wider product, split by strides.
#include <cstring>

#include "optimize/passes.h"

namespace ridgeline {
namespace {

struct Projection {
  Node* node;
  const Tensor* weights;  // [K, N]
};

bool is_projection(Graph& graph, const Node& node, Projection& out) {
  if (!node.alive || !node.is("MatMul")) return false;
  const Tensor* w = graph.constant(node.input(1));
  if (!w || w->rank() != 2 || w->dtype() != DType::kF32 || graph.value(node.input(0)).rank() < 2) return false;
  out = {&graph.node(node.id), w};
  return true;
}

// Epilogues join if they are the same program over operands that are one row of constants each.
bool same_epilogue(const Graph& graph, const Projection& a, const Projection& b) {
  if (!a.node->program != !b.node->program) return false;
  if (!a.node->program) return true;
  if (!(*a.node->program == *b.node->program) || a.node->inputs.size() != b.node->inputs.size()) return false;
  for (const Projection* p : {&a, &b}) {
    for (size_t i = size_t(p->node->op_inputs); i < p->node->inputs.size(); ++i) {
      const Tensor* c = graph.constant(p->node->inputs[i]);
      if (!c || c->dtype() != DType::kF32 || c->elements() != p->weights->shape()[1]) return false;
      if (c->shape().empty() || c->shape().back() != c->elements()) return false;
    }
  }
  return true;
}

Tensor concat_columns(const std::vector<const Tensor*>& parts) {
  int64_t columns = 0;
  for (const Tensor* t : parts) columns += t->shape().back();
  const int64_t rows = parts[0]->elements() / parts[0]->shape().back();
  Tensor out(DType::kF32, rows == 1 && parts[0]->rank() == 1 ? Extents{columns} : Extents{rows, columns});
  for (int64_t r = 0; r < rows; ++r) {
    float* to = out.as<float>() + r * columns;
    for (const Tensor* t : parts) {
      const int64_t n = t->shape().back();
      std::memcpy(to, t->as<float>() + r * n, size_t(n) * sizeof(float));
      to += n;
    }
  }
  return out;
}

void merge(Graph& graph, const std::vector<Projection>& group, Decisions& decisions) {
  std::vector<const Tensor*> weights;
  std::vector<int64_t> sizes;
  std::vector<std::string> names;
  for (const Projection& p : group) {
    weights.push_back(p.weights);
    sizes.push_back(p.weights->shape()[1]);
    for (const std::string& n : origins({p.node})) names.push_back(n);
  }
  const Node& first = *group[0].node;
  const int64_t bytes = value_bytes(graph, first.input(0)) * int64_t(group.size() - 1);
  const ValueId w = graph.add_constant(graph.value(first.input(1)).name + ".merged", concat_columns(weights));
  const NodeId wide = graph.add_node(*first.op, {first.input(0), w}, {}, 1, {}, first.name + "/merged");
  Node& merged = graph.node(wide);
  merged.origin = names;
  if (first.program) {
    std::vector<ValueId> inputs = {first.input(0), w};
    for (size_t i = 2; i < first.inputs.size(); ++i) {
      std::vector<const Tensor*> rows;
      std::vector<Tensor> flat;
      for (const Projection& p : group) {
        const Tensor* c = graph.constant(p.node->inputs[i]);
        flat.push_back(c->reshaped({c->elements()}));
      }
      for (const Tensor& t : flat) rows.push_back(&t);
      inputs.push_back(graph.add_constant(graph.value(first.inputs[i]).name + ".merged", concat_columns(rows)));
    }
    merged.program = first.program;
    graph.set_inputs(merged, std::move(inputs), 2);
    graph.infer(merged);
  }
  Attributes attributes;
  attributes.set("axis", int64_t(-1));
  const ValueId split = graph.add_constant({}, Tensor::from<int64_t>({int64_t(sizes.size())}, sizes));
  const NodeId parts = graph.add_node(*find_op("Split"), {merged.output(), split}, attributes, int(group.size()), {},
                                      first.name + "/split");
  graph.node(parts).origin = names;
  for (size_t i = 0; i < group.size(); ++i) {
    graph.replace_uses(group[i].node->output(), graph.node(parts).output(int(i)));
    const std::vector<ValueId> replaced = group[i].node->inputs;
    graph.remove(*group[i].node);
    for (ValueId v : replaced) release_unread(graph, v);
  }
  decisions.apply(names, bytes, int(group.size()) - 1);
}

}  // namespace

void merge_projections(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    Projection first{};
    if (!is_projection(graph, graph.node(id), first)) continue;
    std::vector<Projection> group = {first};
    for (NodeId user : graph.users(first.node->input(0))) {
      Projection other{};
      if (user == id || !is_projection(graph, graph.node(user), other) || other.node->input(0) != first.node->input(0))
        continue;
      if (other.weights->shape()[0] != first.weights->shape()[0]) continue;
      if (graph.value(other.node->output()).is_output || graph.value(first.node->output()).is_output) {
        decisions.refuse(*other.node, "graph_output", "its result is an output of the graph and must be dense");
        continue;
      }
      if (!same_epilogue(graph, first, other)) {
        decisions.refuse(*other.node, "other_epilogue",
                         fmt::format("it shares its input with '{}', but their epilogues differ", first.node->name));
        continue;
      }
      group.push_back(other);
    }
    if (group.size() < 2 || !decisions.allowed(*first.node)) continue;
    merge(graph, group, decisions);
  }
  graph.remove_dead();
}

}  // namespace ridgeline
