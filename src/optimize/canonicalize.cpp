// One spelling for what exporters write in several, so that patterns and folds need not know them all.
// Changes rounding (x / c becomes x * (1 / c)), never meaning.
#include <algorithm>
#include <cmath>

#include "ir/reference.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

// In a traced pattern a constant named "@..." stands for any number: rewriting with its value would lose the hole.
bool is_hole(const Graph& graph, ValueId v) { return v != kNoValue && graph.value(v).name.starts_with("@"); }

ValueId mapped_constant(Graph& graph, ValueId v, double (*f)(double)) {
  const Tensor& from = *graph.constant(v);
  Tensor to(from.dtype(), from.shape());
  for (int64_t i = 0, count = from.elements(); i < count; ++i) store_f64(to.dtype(), to.data(), i, f(from.f64(i)));
  return graph.add_constant({}, to);
}

void become(Graph& graph, Node& node, std::string_view op, std::vector<ValueId> inputs) {
  node.op = find_op(op);
  const int count = int(inputs.size());
  graph.set_inputs(node, std::move(inputs), count);
}

bool commutes(const Node& node) { return node.is("Add") || node.is("Mul"); }

bool rewrite_elementwise(Graph& graph, Node& node) {
  const ValueId a = node.input(0), b = node.input(1);
  if (!is_float(graph.value(node.output()).dtype())) return false;
  if (node.is("Sum") && node.inputs.size() == 2) return become(graph, node, "Add", {a, b}), true;
  if (b == kNoValue) return false;
  if (commutes(node) && graph.constant(a) && !graph.constant(b)) return graph.set_inputs(node, {b, a}, 2), true;
  if (!graph.constant(b) || graph.constant(a) || is_hole(graph, b)) return false;
  if (node.is("Sub"))
    return become(graph, node, "Add", {a, mapped_constant(graph, b, [](double c) { return -c; })}), true;
  if (node.is("Div")) {
    for (int64_t i = 0, count = graph.constant(b)->elements(); i < count; ++i) {
      // 1 / c leaves the range (the narrowest here is float16's): the quotient stays.
      const double r = std::fabs(1 / graph.constant(b)->f64(i));
      const bool half = graph.constant(b)->dtype() == DType::kF16;
      if (!(r <= (half ? 6e4 : 1e38) && r >= (half ? 1e-4 : 1e-30))) return false;
    }
    return become(graph, node, "Mul", {a, mapped_constant(graph, b, [](double c) { return 1 / c; })}), true;
  }
  if (node.is("Pow") && graph.value(a).dtype() == graph.value(b).dtype() && graph.constant(b)->elements() == 1 &&
      graph.value(b).rank() <= graph.value(a).rank()) {
    const double e = graph.constant(b)->f64(0);
    if (e == 2) return become(graph, node, "Mul", {a, a}), true;
    if (e == 0.5) return become(graph, node, "Sqrt", {a}), true;
  }
  return false;
}

// Square by square, or each column would fetch a page a row: 1000x1024 took a tenth of MobileNetV3's planning.
void transpose(const float* from, int64_t rows, int64_t cols, float* to) {
  constexpr int64_t kSide = 16;
  for (int64_t r0 = 0; r0 < rows; r0 += kSide)
    for (int64_t k0 = 0; k0 < cols; k0 += kSide)
      for (int64_t k = k0; k < std::min(k0 + kSide, cols); ++k)
        for (int64_t r = r0; r < std::min(r0 + kSide, rows); ++r) to[k * rows + r] = from[r * cols + k];
}

// Gemm with constant B becomes MatMul and Add: one contraction to match, whose weights hold transposition and alpha.
bool split_gemm(Graph& graph, Node& node) {
  if (!node.is("Gemm") || node.program || schema_integer(*node.op, node.attributes, "transA")) return false;
  const Tensor* b = graph.constant(node.input(1));
  if (!b || !is_float(b->dtype())) return false;
  const double alpha = schema_number(*node.op, node.attributes, "alpha"),
               beta = schema_number(*node.op, node.attributes, "beta");
  const ValueId c = node.input(2);
  if (c != kNoValue && beta != 1 && beta != 0) return false;
  const bool transposed = schema_integer(*node.op, node.attributes, "transB") != 0;
  ValueId weights = node.input(1);
  if (transposed || alpha != 1) {
    const int64_t rows = b->shape()[0], cols = b->shape()[1];
    Tensor w(b->dtype(), transposed ? Extents{cols, rows} : b->shape());
    if (b->dtype() == DType::kF32 && alpha == 1)
      transpose(b->as<float>(), rows, cols, w.as<float>());
    else
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t k = 0; k < cols; ++k)
          store_f64(w.dtype(), w.data(), transposed ? k * rows + r : r * cols + k, alpha * b->f64(r * cols + k));
    weights = graph.add_constant(graph.value(node.input(1)).name, w);
  }
  const ValueId a = node.input(0), out = node.output();
  const NodeId product = graph.add_node(*find_op("MatMul"), {a, weights}, {}, 1, {}, node.name + "/product");
  graph.node(product).origin = origins({&node});
  ValueId result = graph.node(product).output();
  if (c != kNoValue && beta == 1) {
    const NodeId sum = graph.add_node(*find_op("Add"), {result, c}, {}, 1, {}, node.name + "/bias");
    graph.node(sum).origin = origins({&node});
    result = graph.node(sum).output();
  }
  const ValueId replaced = node.input(1);
  graph.replace_uses(out, result);
  graph.remove(node);
  release_unread(graph, replaced);
  return true;
}

bool negative_axis(const Graph& graph, Node& node) {
  if (!node.is("Softmax") && !node.is("LogSoftmax") && !node.is("LayerNormalization")) return false;
  const int64_t axis = schema_integer(*node.op, node.attributes, "axis");
  if (axis < 0 || !graph.value(node.input(0)).info.shape) return false;
  node.attributes.set("axis", axis - graph.value(node.input(0)).rank());
  return true;
}

}  // namespace

void canonicalize(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    Node& node = graph.node(id);
    if (!node.alive || node.program || !decisions.allowed(node)) continue;
    const std::vector<std::string> names = origins({&node});
    bool changed = false;
    if (node.op->is_elementwise())
      changed = rewrite_elementwise(graph, node);
    else
      changed = split_gemm(graph, node) || negative_axis(graph, node);
    if (changed) decisions.apply(names, 0, 0);
  }
  graph.remove_dead();
}

}  // namespace ridgeline
