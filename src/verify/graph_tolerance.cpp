#include "verify/graph_tolerance.h"

#include <algorithm>
#include <cmath>

namespace ridgeline {
namespace {

// Terms that one output element sums.
double terms(const Graph& graph, const Node& node, const Bindings& bindings) {
  auto elements = [&](ValueId v) { return v == kNoValue || !graph.value(v).info.shape ? 1.0 : double(element_count(evaluate(graph.value(v).shape(), bindings))); };
  const double outputs = std::max(1.0, elements(node.output()));
  if (node.op->kind == OpKind::kReduction) {
    // A normalization's result is as large as its input: rows of the last axis are what it sums.
    const double inputs = elements(node.input(0));
    if (inputs > outputs) return inputs / outputs;
    const Shape& shape = graph.value(node.input(0)).shape();
    return shape.empty() ? 1 : double(std::max<int64_t>(1, shape.back().evaluate(bindings)));
  }
  if (node.op->kind != OpKind::kContraction) return 1;
  // Weights [.., K, N] or [M, C, kernel...]: K terms an output.
  const Shape& weights = graph.value(node.input(1)).shape();
  if (node.is("Conv") || node.is("ConvTranspose")) return std::max(1.0, elements(node.input(1)) / double(std::max<int64_t>(1, weights[0].evaluate(bindings))));
  return weights.size() < 2 ? elements(node.input(1)) : double(std::max<int64_t>(1, weights[weights.size() - 2].evaluate(bindings)));
}

}  // namespace

double graph_tolerance(const Graph& graph, const Bindings& bindings_given) {
  Bindings bindings = bindings_given;
  for (const std::string& s : graph.symbols()) bindings.emplace(s, 1);
  std::vector<double> error(size_t(graph.value_count()), 0);
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    double worst = 0;
    for (ValueId v : node.inputs) if (v != kNoValue) worst = std::max(worst, error[size_t(v)]);
    for (ValueId v : node.outputs) {
      if (v == kNoValue) continue;
      const DType dtype = graph.value(v).dtype();
      double own = 0;
      if (is_float(dtype) && node.op->tolerance.kind != Tolerance::Kind::kExact) {
        const double n = graph.value(node.input(0)).info.shape ? terms(graph, node, bindings) : 1;
        const bool sums = node.op->tolerance.kind != Tolerance::Kind::kElementwise;
        own = (node.op->tolerance.ulps + (sums ? 4 * std::sqrt(n) : 0)) * info(dtype).epsilon / 2;
      }
      error[size_t(v)] = worst + own;
    }
  }
  double largest = 0;
  for (ValueId v : graph.outputs) largest = std::max(largest, error[size_t(v)]);
  return largest;
}

}  // namespace ridgeline
