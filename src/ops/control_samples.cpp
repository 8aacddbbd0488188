// Small subgraphs by name, for problems in text: samples of If, Loop and Scan.
#include "ir/control.h"
#include "ops/common.h"

namespace ridgeline {
namespace {

// x -> x + x, or -x; of the type that the operands around it decide.
std::shared_ptr<const Graph> branch(bool twice) {
  auto graph = std::make_shared<Graph>();
  const ValueId x = graph->add_input("x", DType::kNone, std::nullopt);
  const NodeId node = twice ? graph->add_node(*find_op("Add"), {x, x}) : graph->add_node(*find_op("Neg"), {x});
  graph->mark_output(graph->node(node).output());
  return graph;
}

// (number, condition, x) -> condition, 2 x, x. Growing: x with itself along axis 0, nothing collected.
std::shared_ptr<const Graph> loop(bool growing) {
  auto graph = std::make_shared<Graph>();
  graph->add_input("number", DType::kI64, Shape());
  const ValueId condition = graph->add_input("condition", DType::kBool, Shape());
  const ValueId x = graph->add_input("x", DType::kNone, std::nullopt);
  Attributes axis;
  axis.set("axis", int64_t(0));
  const NodeId node =
      growing ? graph->add_node(*find_op("Concat"), {x, x}, axis) : graph->add_node(*find_op("Add"), {x, x});
  graph->mark_output(condition);
  graph->mark_output(graph->node(node).output());
  if (!growing) graph->mark_output(x);
  return graph;
}

// (sum, x) -> sum + x, sum + x.
std::shared_ptr<const Graph> summing() {
  auto graph = std::make_shared<Graph>();
  const ValueId sum = graph->add_input("sum", DType::kNone, std::nullopt);
  const ValueId x = graph->add_input("x", DType::kNone, std::nullopt);
  const NodeId node = graph->add_node(*find_op("Add"), {sum, x});
  const NodeId half = graph->add_node(*find_op("Add"), {graph->node(node).output(), x});
  graph->mark_output(graph->node(node).output());
  graph->mark_output(graph->node(half).output());
  return graph;
}

}  // namespace

std::shared_ptr<const Graph> sample_body(std::string_view name) {
  std::shared_ptr<const Graph> body = name == "twice"      ? branch(true)
                                      : name == "negated"  ? branch(false)
                                      : name == "doubling" ? loop(false)
                                      : name == "growing"  ? loop(true)
                                      : name == "summing"  ? summing()
                                                           : nullptr;
  if (body) const_cast<Graph&>(*body).name = name;
  return body;
}

}  // namespace ridgeline
