// Transposes of transposes and reshapes of reshapes are one; unused results and moves that cancel go.
#include "optimize/passes.h"

namespace ridgeline {
namespace {

bool compose_transposes(Graph& graph, Node& node) {
  Node* inner = graph.producer(node.input(0));
  if (!node.is("Transpose") || !inner || !inner->is("Transpose") || !one_step(graph, node, {inner->id})) return false;
  const std::vector<int64_t> first = permutation_of(graph, *inner), second = permutation_of(graph, node);
  std::vector<int64_t> both;
  for (int64_t a : second) both.push_back(first[size_t(a)]);
  node.attributes.set("perm", both);
  add_origin(node, *inner);
  graph.set_input(node, 0, inner->input(0));
  return true;
}

// The outer target says it all, unless it copies an extent (0) of what stood between.
bool compose_reshapes(Graph& graph, Node& node) {
  Node* inner = graph.producer(node.input(0));
  if (!node.is("Reshape") || !inner ||
      !(inner->is("Reshape") || inner->is("Flatten") || inner->is("Squeeze") || inner->is("Unsqueeze")) ||
      !one_step(graph, node, {inner->id}))
    return false;
  const ValueInfo& target = graph.value(node.input(1)).info;
  std::vector<int64_t> content;
  if (target.constant)
    content = target.constant.to_i64();
  else if (target.values)
    for (const Dim& d : *target.values) content.push_back(d.known() ? d.value() : 1);
  else
    return false;
  for (int64_t c : content)
    if (c == 0) return false;
  add_origin(node, *inner);
  graph.set_input(node, 0, inner->input(0));
  return true;
}

}  // namespace

void simplify_movement(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    Node& node = graph.node(id);
    if (!node.alive || !decisions.allowed(node)) continue;
    if (compose_transposes(graph, node) || compose_reshapes(graph, node)) decisions.apply(origins({&node}), 0, 0);
  }
  graph.remove_dead();
  eliminate_identities(graph, decisions);
}

}  // namespace ridgeline
