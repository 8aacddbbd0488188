// QuantizeLinear and DequantizeLinear with constant scales as the elementwise Programs that they are, so that they fuse
// like any other. Each reader of a dequantized value gets one of its own: it reads bytes, and need not wait for f32.
#include "optimize/passes.h"
#include "optimize/quantization.h"

namespace ridgeline {
namespace {

NodeId add_spelled(Graph& graph, const Node& node, const Scaling& scaling, std::string_view suffix) {
  std::vector<Tensor> more;
  const int rank = graph.value(node.input(0)).rank();
  Program program = is_quantize(node) ? quantize_program(scaling, rank, more) : dequantize_program(scaling, rank, more);
  std::vector<ValueId> inputs = {node.input(0)};
  for (size_t i = 0; i < more.size(); ++i)
    inputs.push_back(graph.add_constant(fmt::format("{}.{}", node.name, i ? "zero" : "scale"), more[i]));
  const NodeId spelled = graph.add_program(std::move(program), inputs);
  graph.node(spelled).name = fmt::format("{}{}", node.name, suffix);
  graph.node(spelled).origin = origins({&node});
  return spelled;
}

}  // namespace

void spell_quantization(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (!node.alive || !(is_quantize(node) || is_dequantize(node)) || graph.constant(node.input(0))) continue;
    std::string why;
    const std::optional<Scaling> scaling = scaling_of(graph, node, why);
    if (!scaling) {
      decisions.refuse(node, "scale", why);
      continue;
    }
    if (!decisions.allowed(node)) continue;
    const ValueId out = node.output();
    const std::vector<std::string> names = origins({&node});
    const std::vector<NodeId> users = graph.users(out);
    int copies = 0;
    for (size_t u = 0; is_dequantize(node) && u + 1 < users.size(); ++u) {
      Node& user = graph.node(users[u]);
      if (user.id == users.back() || reads_shape_only(user)) continue;  // the last one's serves the rest
      for (size_t i = 0; i < user.inputs.size(); ++i) {
        if (user.inputs[i] != out) continue;
        const NodeId own = add_spelled(graph, graph.node(id), *scaling, fmt::format("/{}", ++copies));
        graph.set_input(graph.node(users[u]), int(i), graph.node(own).output());
      }
    }
    const NodeId last = add_spelled(graph, graph.node(id), *scaling, "");
    graph.replace_uses(out, graph.node(last).output());
    graph.remove(graph.node(id));
    decisions.apply(names, 0, 0);
  }
  graph.remove_dead();
}

}  // namespace ridgeline
