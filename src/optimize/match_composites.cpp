// Composites: wherever a declared decomposition stands in the graph, the operator itself takes its place.
#include <algorithm>
#include <cmath>

#include "optimize/match.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

// The value a hole is bound to; a permutation becomes a Transpose (a view in the Plan, and often undone by one before
// it).
ValueId materialize(Graph& graph, const BoundHole& bound, const std::vector<std::string>& origin) {
  if (bound.perm.empty()) return bound.value;
  ValueId source = bound.value;
  std::vector<int64_t> perm = bound.perm;
  if (const Node* inner = graph.producer(source); inner && inner->is("Transpose")) {
    const std::vector<int64_t> first = permutation_of(graph, *inner);
    for (int64_t& a : perm) a = first[size_t(a)];
    source = inner->input(0);
  }
  if (std::is_sorted(perm.begin(), perm.end())) return source;
  Attributes attributes;
  attributes.set("perm", perm);
  const NodeId transpose = graph.add_node(*find_op("Transpose"), {source}, attributes);
  graph.node(transpose).origin = origin;
  return graph.node(transpose).output();
}

// Would the schema accept these operands and return the root's shape and dtype?
std::optional<std::string> illegal(const Graph& graph, const Pattern& pattern, const Match& m,
                                   const Attributes& attributes, ValueId root) {
  std::vector<ValueInfo> infos(size_t(pattern.inputs));
  std::vector<const ValueInfo*> pointers(size_t(pattern.inputs), nullptr);
  for (size_t h = 0; h < pattern.holes.size(); ++h) {
    const auto it = m.holes.find(pattern.graph.inputs[h]);
    if (it == m.holes.end()) return "an operand was not found";
    ValueInfo& info = infos[size_t(pattern.holes[h])];
    info = graph.value(it->second.value).info;
    info.values.reset();
    if (!it->second.perm.empty()) {
      Shape permuted;
      for (int64_t a : it->second.perm) permuted.push_back((*info.shape)[size_t(a)]);
      info.shape = permuted;
      info.constant = {};
    }
    pointers[size_t(pattern.holes[h])] = &info;
  }
  try {
    const std::vector<ValueInfo> results =
        infer_node(*pattern.op, attributes, std::string(pattern.op->name), pointers, 1);
    if (results[0].dtype != graph.value(root).dtype()) return "the result's type would differ";
    if (*results[0].shape != graph.value(root).shape())
      return fmt::format("the result would be {} instead of {}", text(*results[0].shape),
                         text(graph.value(root).shape()));
  } catch (const Error& error) {
    return error.what();
  }
  return std::nullopt;
}

bool try_pattern(Graph& graph, const Pattern& pattern, ValueId root, Decisions& decisions) {
  const Node& root_node = *graph.producer(root);
  Mismatch mismatch;
  const std::optional<Match> m = match(pattern, graph, root, mismatch);
  if (!m) {
    if (!mismatch.code.empty())
      decisions.refuse(root_node, mismatch.code, fmt::format("{}: {}", pattern.op->name, mismatch.reason));
    return false;
  }
  Attributes attributes = pattern.attributes;
  for (const auto& [name, value] : m->numbers) attributes.set(name, value);
  if (const auto why = illegal(graph, pattern, *m, attributes, root)) {
    decisions.refuse(root_node, "illegal_operands", fmt::format("{}: {}", pattern.op->name, *why));
    return false;
  }
  if (!decisions.allowed(root_node)) return false;
  std::vector<std::string> names;
  int64_t bytes = 0;
  double flops = 0, before = 0, after = double(value_bytes(graph, root));
  for (NodeId id : m->nodes) {
    const Node& node = graph.node(id);
    for (const std::string& n : origins({&node}))
      if (std::find(names.begin(), names.end(), n) == names.end()) names.push_back(n);
    flops += double(node_flops(graph, node));
    for (ValueId v : node.inputs) before += double(value_bytes(graph, v));
    for (ValueId v : node.outputs) before += double(value_bytes(graph, v));
    if (node.output() != root) bytes += 2 * value_bytes(graph, node.output());
  }
  std::vector<ValueId> inputs(size_t(pattern.inputs), kNoValue);
  for (size_t h = 0; h < pattern.holes.size(); ++h) {
    inputs[size_t(pattern.holes[h])] = materialize(graph, m->holes.at(pattern.graph.inputs[h]), names);
    after += double(value_bytes(graph, inputs[size_t(pattern.holes[h])]));
  }
  const std::string name = root_node.name;
  const NodeId fused = graph.add_node(*pattern.op, inputs, attributes, 1, {}, name);
  graph.node(fused).origin = names;
  graph.replace_uses(root, graph.node(fused).output());
  graph.remove_dead();
  decisions.apply(names, bytes, int(m->nodes.size()) - 1, before > 0 ? flops / before : 0,
                  after > 0 ? flops / after : 0);
  return true;
}

// A scalar factor of attention's queries (q / sqrt(d) before the product) moves into its scale.
void absorb_query_scale(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    Node& node = graph.node(id);
    if (!node.alive || !node.is("ScaledDotProductAttention")) continue;
    for (int operand : {0, 1}) {
      Node* mul = graph.producer(node.input(operand));
      // Through transposes, which a factor passes.
      Node* outer = nullptr;
      if (mul && mul->is("Transpose") && graph.uses(mul->output()) == 1) {
        outer = mul;
        mul = graph.producer(mul->input(0));
      }
      if (!mul || !mul->is("Mul") || mul->program || graph.uses(mul->output()) != 1) continue;
      const std::optional<double> factor = uniform_constant(graph, mul->input(1));
      if (!factor || graph.constant(mul->input(1))->elements() != 1 || *factor <= 0 ||
          graph.value(mul->output()).shape() != graph.value(mul->input(0)).shape() || !decisions.allowed(*mul))
        continue;
      const double scale = schema_number(*node.op, node.attributes, "scale");
      node.attributes.set("scale", scale * *factor);
      const std::vector<std::string> names = origins({&node, mul});
      const int64_t bytes = 2 * value_bytes(graph, mul->output());
      add_origin(node, *mul);
      graph.set_input(outer ? *outer : node, outer ? 0 : operand, mul->input(0));
      graph.remove(*mul);
      decisions.apply(names, bytes, 1);
    }
  }
}

}  // namespace

void match_composites(Graph& graph, Decisions& decisions) {
  // From outputs to inputs, largest pattern first: an RMSNormalization stands inside every LayerNormalization.
  std::vector<NodeId> order = graph.order();
  for (const Pattern& pattern : composite_patterns()) {
    const OpSchema* root_op = pattern.graph.producer(pattern.graph.outputs[0])->op;
    for (auto it = order.rbegin(); it != order.rend(); ++it) {
      const Node& node = graph.node(*it);
      if (!node.alive || node.op != root_op || node.outputs.size() != 1 || node.output() == kNoValue) continue;
      const ValueId root = node.output();
      if (!graph.value(root).info.shape || graph.value(root).dtype() != DType::kF32) continue;
      try_pattern(graph, pattern, root, decisions);
    }
  }
  absorb_query_scale(graph, decisions);
  graph.remove_dead();
}

}  // namespace ridgeline
