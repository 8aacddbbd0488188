// DequantizeLinear sinks through what only moves or compares values, so that bytes are moved; where it meets a
// QuantizeLinear of the same scale both go. What a quantization does anyway, Relu and Clip at the ends of its range,
// goes too.
#include <algorithm>
#include <cmath>
#include <limits>

#include "optimize/passes.h"
#include "optimize/quantization.h"

namespace ridgeline {
namespace {

// Operators whose results are some of their operand's elements; all but Concat have one.
bool moves_values(const Node& node) {
  for (const std::string_view op :
       {"Concat", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Expand", "Gather", "Identity",
        "MaxPool", "GlobalMaxPool", "DepthToSpace", "SpaceToDepth", "Tile"})
    if (node.is(op)) return true;
  return node.is("Resize") && schema_string(*node.op, node.attributes, "mode") == "nearest" &&
         schema_string(*node.op, node.attributes, "coordinate_transformation_mode") != "tf_crop_and_resize";
}

int data_inputs(const Node& node) { return node.is("Concat") ? int(node.inputs.size()) : 1; }

// move(DQ(x)) = DQ(move(x)): the scale is positive, so that a maximum stays one.
bool sink(Graph& graph, Decisions& decisions, NodeId id) {
  if (!moves_values(graph.node(id)) || graph.node(id).program || graph.node(id).outputs.size() != 1 ||
      !graph.value(graph.node(id).output()).info.shape)
    return false;
  const int count = data_inputs(graph.node(id));
  std::vector<ValueId> inputs = graph.node(id).inputs;
  const Node* first = nullptr;
  std::optional<Scaling> scaling;
  std::string why;
  std::vector<const Node*> above;
  for (int i = 0; i < count; ++i) {
    const Node* dq = graph.producer(inputs[size_t(i)]);
    if (!dq || !is_dequantize(*dq) || graph.constant(dq->input(0))) return false;
    const std::optional<Scaling> s = scaling_of(graph, *dq, why);
    if (!s || !s->single()) {
      decisions.refuse(graph.node(id), s ? "per_axis" : "scale",
                       s ? "it moves values of several scales" : fmt::format("'{}': {}", dq->name, why));
      return false;
    }
    if (scaling && !(*s == *scaling)) {
      decisions.refuse(graph.node(id), "other_scale",
                       fmt::format("'{}' and '{}' have other scales or zero points", first->name, dq->name));
      return false;
    }
    scaling = s;
    if (!first) first = dq;
    above.push_back(dq);
    inputs[size_t(i)] = dq->input(0);
  }
  const NodeId moved =
      graph.add_node(*graph.node(id).op, inputs, graph.node(id).attributes, 1, {}, graph.node(id).name);
  Node &to = graph.node(moved), &from = graph.node(id);
  to.origin = origins({&from});
  if (const std::string reason = why_no_kernel(graph, to, nullptr, to.inputs, to.op_inputs); !reason.empty()) {
    decisions.refuse(from, "no_kernel",
                     fmt::format("only the reference would do it in {}: {}", name(scaling->type), reason));
    graph.remove(to);
    return false;
  }
  if (!decisions.allowed(from)) {
    graph.remove(to);
    return false;
  }
  std::vector<ValueId> below = {to.output(), first->input(1)};
  if (first->input(2) != kNoValue) below.push_back(first->input(2));
  const NodeId dq = graph.add_node(*first->op, below, first->attributes, 1, {}, first->name + "/moved");
  graph.node(dq).origin = origins({first});
  const int64_t saved = 3 * (value_bytes(graph, to.output()) + value_bytes(graph, to.input(0)));
  std::vector<std::string> names = origins({&from});
  for (const Node* node : above)
    for (const std::string& n : origins({node})) names.push_back(n);
  graph.replace_uses(from.output(), graph.node(dq).output());
  graph.remove(from);
  decisions.apply(names, saved, 0);
  return true;
}

// The bounds that an activation sets, infinite where it sets none; nullopt: it is none of these.
struct Bounds {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
};
std::optional<Bounds> bounds_of(const Graph& graph, const Node& node) {
  Bounds b;
  if (node.program) return std::nullopt;
  if (node.is("Relu")) {
    b.low = 0;
    return b;
  }
  if (!node.is("Clip")) return std::nullopt;
  for (int i : {1, 2}) {
    if (node.input(i) == kNoValue) continue;
    const Tensor* c = graph.constant(node.input(i));
    if (!c || c->elements() != 1) return std::nullopt;
    (i == 1 ? b.low : b.high) = c->f64(0);
  }
  return b;
}

// The level of a bound before saturation, as the quantization computes it.
double level(double bound, const Scaling& s) {
  return double(std::nearbyintf(float(bound) / s.scale[0])) + double(s.zero[0]);
}

// QuantizeLinear rises with its argument: what lies beyond a bound that is at or past the end of the range saturates
// with and without the bound.
bool drop_activation(Graph& graph, Decisions& decisions, Node& quantize) {
  Node* activation = graph.producer(quantize.input(0));
  if (!activation || activation->inputs.empty()) return false;
  const std::optional<Bounds> bounds = bounds_of(graph, *activation);
  std::string why;
  const std::optional<Scaling> s = bounds ? scaling_of(graph, quantize, why) : std::nullopt;
  if (!s || !s->single()) return false;
  const double least = s->type == DType::kI8 ? -128 : 0, most = s->type == DType::kI8 ? 127 : 255;
  const double low = std::isinf(bounds->low) ? least : level(bounds->low, *s);
  const double high = std::isinf(bounds->high) ? most : level(bounds->high, *s);
  if (!(low <= least && high >= most && low <= high)) {
    decisions.refuse(*activation, "range",
                     fmt::format("its bounds are the levels {} and {}, the range of {} goes from {} to {}", low, high,
                                 name(s->type), least, most));
    return false;
  }
  if (!decisions.allowed(*activation)) return false;
  const std::vector<std::string> names = origins({activation, &quantize});
  const int64_t bytes = 2 * value_bytes(graph, activation->output());
  add_origin(quantize, *activation);
  graph.set_input(quantize, 0, activation->input(0));
  decisions.apply(names, bytes, 1);
  return true;
}

bool cancel(Graph& graph, Decisions& decisions, Node& quantize) {
  Node* dequantize = graph.producer(quantize.input(0));
  if (!dequantize || !is_dequantize(*dequantize)) return false;
  std::string why;
  const std::optional<Scaling> in = scaling_of(graph, *dequantize, why), out = scaling_of(graph, quantize, why);
  if (!in || !out || !(*in == *out) || !decisions.allowed(quantize)) return false;
  decisions.apply(origins({dequantize, &quantize}), 2 * value_bytes(graph, dequantize->output()), 2);
  if (Node* from = graph.producer(dequantize->input(0))) {  // what it writes is the quantized value now
    add_origin(*from, *dequantize);
    add_origin(*from, quantize);
  }
  graph.replace_uses(quantize.output(), dequantize->input(0));
  graph.remove(quantize);
  return true;
}

}  // namespace

void move_quantization(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    if (!graph.node(id).alive) continue;
    if (sink(graph, decisions, id) || !is_quantize(graph.node(id))) continue;
    while (drop_activation(graph, decisions, graph.node(id))) {
    }
    cancel(graph, decisions, graph.node(id));
  }
  graph.remove_dead();
}

}  // namespace ridgeline
