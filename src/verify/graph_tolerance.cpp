#include "verify/graph_tolerance.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace ridgeline {
namespace {

/// exp turns an absolute error into a relative one: the error of its argument times the argument's magnitude. Scores
/// and logits beyond 16 are rare (e^16 is 9 million: such a softmax is a maximum).
constexpr double kLargestExponent = 16;
bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Extents extents_of(const Graph& graph, ValueId v, const Bindings& bindings) {
  if (v == kNoValue || !graph.value(v).info.shape) return {};
  Bindings all = bindings;
  std::vector<std::string> symbols;
  for (const Dim& d : graph.value(v).shape()) d.collect_symbols(symbols);
  for (const std::string& s : symbols) all.emplace(s, 1);
  return evaluate(graph.value(v).shape(), all);
}

/// Terms that are summed for one element of the result.
double terms_of(const Graph& graph, const Node& node, const Bindings& bindings) {
  const Extents x = extents_of(graph, node.input(0), bindings);
  if (x.empty()) return 1;
  if (node.op->kind == OpKind::kContraction) {
    const Extents w = extents_of(graph, node.input(1), bindings);
    if (node.is("Conv") && !w.empty() && w[0] > 0) return double(element_count(w)) / double(w[0]);
    if (node.is("ConvTranspose") && w.size() > 1 && w[1] > 0) return double(element_count(w)) / double(w[1]);
    const bool transposed = node.is("Gemm") && node.attributes.flag("transA");
    return double(std::max<int64_t>(1, transposed ? x[0] : x.back()));
  }
  const Extents y = extents_of(graph, node.output(0), bindings);
  double terms = double(element_count(x)) / double(std::max<int64_t>(1, element_count(y)));
  for (int64_t extent : x) terms = std::max(terms, double(extent));
  return std::max(1.0, terms);
}

double exponential(const Node& node) {
  const bool takes_exp = is_one_of(
      node.op->name, {"Exp", "Softmax", "LogSoftmax", "ReduceLogSumExp", "Sinh", "Cosh", "ScaledDotProductAttention"});
  return takes_exp ? kLargestExponent : 1;
}

/// What the operator adds.
double own_error(const Graph& graph, const Node& node, DType dtype, const Bindings& bindings) {
  const Tolerance& t = node.op->tolerance;
  if (!is_float(dtype)) return t.kind == Tolerance::Kind::kElementwise ? t.ulps / 127 : 0;  // steps of a quantized type
  const double unit = info(dtype).epsilon / 2, accumulator = info(info(dtype).accumulator).epsilon / 2;
  switch (t.kind) {
    case Tolerance::Kind::kExact:
      return 0;
    case Tolerance::Kind::kElementwise:
      return t.ulps * 2 * unit * exponential(node);
    default:
      return exponential(node) * t.ulps * unit + 4 * std::sqrt(terms_of(graph, node, bindings)) * accumulator;
  }
}

/// What rounding its operands adds, where a lossy pass may have rounded them. A product's two roundings are relative to
/// each term: by the square-root model (4 for each, as of the accumulator's) they stay within 8 u of the largest
/// result. Any other operator may be stored so: one rounding.
/// Where everything is stored so, the result's rounding comes to that of the operands, which exp enlarges.
double lossy_error(const Node& node, DType dtype, const Rounding& rounding) {
  if (rounding.unit == 0 || !is_float(dtype)) return 0;
  const double operands = node.op->kind == OpKind::kContraction ? 8 : rounding.stored ? exponential(node) : 1;
  return (operands + (rounding.stored ? 1 : 0)) * rounding.unit;
}

/// What becomes of the inputs' errors: the largest is passed on unchanged, so that own errors add along the path with
/// the largest sum. Rescaling (a product with weights, a normalization) rescales value and error alike. Multiplying the
/// errors of a product's factors, or doubling at each normalization, compounds over depth and gave 5e9 for ResNet-50,
/// where 2e-6 is measured: a bound that nothing could exceed is none.
double passed_on(const Node& node, const std::vector<double>& tolerance, const std::set<ValueId>& exact) {
  double largest = 0;
  for (ValueId v : node.inputs) {
    if (v != kNoValue && !exact.count(v)) largest = std::max(largest, tolerance[size_t(v)]);
  }
  return largest;
}

/// A cast rounds exactly what it reads; of what is a little off, a value near a tie goes the other way: one unit.
double narrowing(const Graph& graph, const Node& node, DType dtype, double passed) {
  if (passed == 0 || !node.is("Cast") || !is_float(dtype)) return 0;
  const DType from = graph.value(node.input(0)).dtype();
  return is_float(from) && info(dtype).epsilon > info(from).epsilon ? info(dtype).epsilon : 0;
}

}  // namespace

std::vector<double> value_tolerances(const Graph& graph, const Bindings& bindings, const QuantizedValues& quantized) {
  std::vector<double> tolerance(size_t(graph.value_count()), 0);
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    double passed = passed_on(node, tolerance, quantized.restarted);
    for (ValueId v : node.outputs) {
      if (v == kNoValue) continue;
      const DType dtype = graph.value(v).dtype();
      // Indices and the like are exact, or wrong: no error of a float makes them nearly right.
      if (!is_float(dtype) && node.op->tolerance.kind != Tolerance::Kind::kElementwise) continue;
      passed += lossy_error(node, dtype, quantized.rounding);
      if (const auto level = quantized.level.find(v); level != quantized.level.end()) {
        tolerance[size_t(v)] = passed + level->second;
        continue;
      }
      if (node.program) {  // a fused one: as many operators as it stands for
        const double each = 8 * info(is_float(dtype) ? dtype : DType::kF32).epsilon / 2;
        tolerance[size_t(v)] =
            passed + own_error(graph, node, dtype, bindings) + each * double(node.program->code.size());
        continue;
      }
      tolerance[size_t(v)] = passed + own_error(graph, node, dtype, bindings) + narrowing(graph, node, dtype, passed);
    }
  }
  return tolerance;
}

Rounding rounding_of(const std::set<std::string, std::less<>>& lossy) {
  Rounding rounding;
  if (lossy.count("lower_to_f16")) rounding = {info(DType::kF16).epsilon / 2, true};
  if (lossy.count("lower_to_bf16")) rounding.unit = info(DType::kBF16).epsilon / 2;
  if (lossy.count("lower_to_int8")) rounding.unit = 1.0 / 254;
  return rounding;
}

double graph_tolerance(const Graph& graph, const Bindings& bindings, const Rounding& rounding) {
  QuantizedValues values;
  values.rounding = rounding;
  const std::vector<double> tolerance = value_tolerances(graph, bindings, values);
  double largest = 0;
  for (ValueId v : graph.outputs) largest = std::max(largest, tolerance[size_t(v)]);
  return largest;
}

}  // namespace ridgeline
