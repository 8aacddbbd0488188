// QLinearConv and QLinearMatMul as what they mean: dequantizations, the operator in f32, a quantization. The passes
// over quantized graphs then make integer sums of them with their epilogues, and move bytes past what follows; as they
// stand they have only the reference. Source: ONNX QLinearConv-10, QLinearMatMul-21.
#include "optimize/passes.h"

namespace ridgeline {
namespace {

/// Inputs in the order of both operators: x, its scale and zero point, w, its scale and zero point, y's.
enum Input { kX, kXScale, kXZero, kW, kWScale, kWZero, kYScale, kYZero, kBias };

class Expansion {
 public:
  Expansion(Graph& graph, NodeId id) : graph_(graph), id_(id), conv_(graph.node(id).is("QLinearConv")) {}

  /// Why the node is left as it is; empty: it can be expanded.
  std::string reject() const {
    if (conv_ && has_bias() && (!number(kXScale) || !graph_.constant(in(kWScale))))
      return "the scale of its bias is known only at run time";
    if (conv_) return {};
    // A scale a row of A is one of an axis; with batches it would be one of two.
    for (const int scale : {kXScale, kWScale})
      if (graph_.value(in(scale)).rank() > 1) return "a scale has more than one axis";
    return {};
  }

  void apply() {
    const int rank = graph_.value(in(kX)).rank();
    std::vector<ValueId> operands = {dequantized(kX, rank - 2),
                                     dequantized(kW, conv_ ? 0 : graph_.value(in(kW)).rank() - 1)};
    if (has_bias()) operands.push_back(bias());
    const ValueId real = added(conv_ ? "Conv" : "MatMul", operands, conv_ ? graph_.node(id_).attributes : Attributes(),
                               graph_.node(id_).name);
    std::vector<ValueId> quantize = {real, scale(kYScale), in(kYZero)};
    const ValueId y = added("QuantizeLinear", quantize, {}, graph_.node(id_).name + "/quantized");
    graph_.replace_uses(graph_.node(id_).output(), y);
    graph_.remove(graph_.node(id_));
  }

 private:
  ValueId in(int input) const { return graph_.node(id_).input(input); }
  bool has_bias() const { return conv_ && in(kBias) != kNoValue; }
  const Tensor* number(int input) const {
    const Tensor* t = graph_.constant(in(input));
    return t && t->elements() == 1 ? t : nullptr;
  }

  ValueId added(std::string_view op, const std::vector<ValueId>& inputs, Attributes attributes,
                const std::string& name) {
    const NodeId node = graph_.add_node(*find_op(op), inputs, std::move(attributes), 1, {}, name);
    graph_.node(node).origin = origins({&graph_.node(id_)});
    return graph_.node(node).output();
  }

  /// Scales of 16 bits are widened: there are kernels between bytes and f32, and the node's own meaning rounds no
  /// product to 16 bits either.
  ValueId scale(int input) {
    if (info(graph_.value(in(input)).dtype()).bits != 16) return in(input);
    Attributes attributes;
    attributes.set("to", int64_t(info(DType::kF32).onnx_id));
    return added("Cast", {in(input)}, std::move(attributes), fmt::format("{}/scale_{}", graph_.node(id_).name, input));
  }

  ValueId dequantized(int input, int axis) {
    Attributes attributes;
    if (graph_.value(in(input + 1)).rank() == 1) attributes.set("axis", int64_t(axis));
    return added("DequantizeLinear", {in(input), scale(input + 1), in(input + 2)}, std::move(attributes),
                 fmt::format("{}/{}", graph_.node(id_).name, input == kX ? "x" : "w"));
  }

  /// Its bytes stand for multiples of x_scale * w_scale.
  ValueId bias() {
    const Tensor &w = *graph_.constant(in(kWScale)), &x = *number(kXScale);
    Tensor scale(DType::kF32, w.elements() == 1 ? Extents{} : Extents{w.elements()});
    for (int64_t k = 0; k < w.elements(); ++k) scale.as<float>()[k] = float(w.f64(k) * x.f64(0));
    Attributes attributes;
    attributes.set("axis", int64_t(0));
    const ValueId by = graph_.add_constant(graph_.node(id_).name + ".bias_scale", scale);
    return added("DequantizeLinear", {in(kBias), by}, std::move(attributes), graph_.node(id_).name + "/bias");
  }

  Graph& graph_;
  NodeId id_;
  bool conv_;
};

}  // namespace

void expand_quantized(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (!node.alive || node.program || !(node.is("QLinearConv") || node.is("QLinearMatMul"))) continue;
    Expansion expansion(graph, id);
    if (const std::string why = expansion.reject(); !why.empty()) {
      decisions.refuse(node, "scale", why);
      continue;
    }
    if (!decisions.allowed(node)) continue;
    const std::vector<std::string> names = origins({&node});
    expansion.apply();
    decisions.apply(names, 0, 0);
  }
  graph.remove_dead();
}

}  // namespace ridgeline
