// Every declared gradient against central differences in f64, over the schema's own samples.
#include "optimize/gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "ir/problem.h"
#include "ir/reference.h"
#include "ops/catalogue.h"
#include "verify/reference_run.h"

namespace ridgeline {
namespace {

/// The same numbers everywhere: a small linear congruence.
class Random {
 public:
  double uniform() { return double((state_ = state_ * 6364136223846793005u + 1442695040888963407u) >> 11) * 0x1p-53; }

 private:
  uint64_t state_ = 42;
};

std::string in_f64(std::string_view sample) {
  std::string text(sample);
  for (std::string_view narrow : {"f32[", "f16["})
    for (size_t at; (at = text.find(narrow)) != std::string::npos && (at == 0 || text[at - 1] != 'b');)
      text.replace(at, 4, "f64[");
  for (size_t at; (at = text.find("bf16[")) != std::string::npos;) text.replace(at, 5, "f64[");
  return text;
}

/// Away from kinks and poles: magnitudes in (0.1, 0.9), positive or above 1 where the function wants that.
Tensor filled(const OpSchema& op, const Operand& operand, std::string_view name, Random& random) {
  static const std::set<std::string_view> kPositive = {"Sqrt", "Log", "Pow", "ReduceLogSum", "ReduceProd", "Mod"};
  if (operand.constant) return operand.constant;
  Tensor t = Tensor::zeros(operand.dtype, operand.shape());
  for (int64_t k = 0; k < t.elements(); ++k) {
    double v = 0.1 + 0.8 * random.uniform();
    const bool negative = random.uniform() < 0.5;
    if (op.name == "Acosh")
      v += 1.2;
    else if (op.name == "Clip" && name != "input")
      v = name == "min" ? -v : v;  // a min above max is another function
    else if (negative && !kPositive.count(op.name) && name != "variance")
      v = -v;
    if (is_float(t.dtype()))
      store_f64(t.dtype(), t.data(), k, v);
    else if (op.name == "MaxUnpool")
      store_i64(t.dtype(), t.data(), k, k);  // places are each one's own: of two at one place the later alone is read
    else
      store_i64(t.dtype(), t.data(), k, t.dtype() == DType::kBool ? negative : 1);
  }
  return t;
}

bool has_gradient(const OpSchema& op) {
  return op.gradient || (op.no_gradient.empty() && (op.is_elementwise() || !op.decompose.empty()));
}

/// Sum over the outputs of weights * y, by the reference.
double loss(const OpSchema& op, const Attributes& attributes, const std::vector<Tensor>& inputs,
            const std::vector<Tensor>& weights) {
  const std::vector<Tensor> y = run_reference(op, attributes, inputs, int(weights.size()));
  double sum = 0;
  for (size_t o = 0; o < y.size(); ++o)
    for (int64_t k = 0; weights[o] && k < y[o].elements(); ++k) sum += weights[o].f64(k) * y[o].f64(k);
  return sum;
}

void check(const OpSchema& op, const Problem& problem) {
  Random random;
  std::vector<Tensor> inputs, given;
  Graph graph;
  std::vector<ValueId> ids, floats;
  for (int i = 0; i < problem.op_inputs; ++i) {
    const Operand& operand = problem.input(i);
    const std::string name = i < op.inputs.size() ? std::string(op.inputs[i].name) : "more" + std::to_string(i);
    inputs.push_back(operand.present() ? filled(op, operand, name, random) : Tensor());
    if (!operand.present()) {
      ids.push_back(kNoValue);
      continue;
    }
    const bool differentiable = is_float(operand.dtype) && !operand.constant;
    ids.push_back(differentiable ? graph.add_input(name, operand.dtype, to_shape(operand.shape()))
                                 : graph.add_constant(name, inputs.back()));
    if (differentiable) floats.push_back(ids.back()), given.push_back(inputs.back());
  }
  const int outputs = int(problem.outputs.size());
  const NodeId node = graph.add_node(op, ids, problem.attributes, outputs);
  std::vector<ValueId> results, gradients;
  std::vector<Tensor> weights;
  for (int o = 0; o < outputs; ++o) {
    weights.emplace_back();
    if (!is_float(problem.output(o).dtype)) continue;
    Tensor w(problem.output(o).dtype, problem.output(o).shape());
    for (int64_t k = 0; k < w.elements(); ++k) store_f64(w.dtype(), w.data(), k, random.uniform() - 0.4);
    weights.back() = w;
    results.push_back(graph.node(node).output(o));
    gradients.push_back(graph.add_input("d" + std::to_string(o), w.dtype(), to_shape(w.shape())));
    given.push_back(w);
  }
  const std::vector<ValueId> wanted = add_gradients(graph, results, gradients, floats);
  for (ValueId v : wanted)
    if (v != kNoValue) graph.mark_output(v);
  const std::vector<std::string> faults = graph.verify();
  ASSERT_TRUE(faults.empty()) << faults.front();
  const std::vector<Tensor> computed = run_reference(graph, given);
  size_t next = 0;
  for (size_t f = 0; f < floats.size(); ++f) {
    const size_t input = size_t(std::find(ids.begin(), ids.end(), floats[f]) - ids.begin());
    SCOPED_TRACE("d(" + graph.value(floats[f]).name + ")");
    const Tensor analytic =
        wanted[f] == kNoValue ? Tensor::zeros(DType::kF64, inputs[input].shape()) : computed[next++];
    ASSERT_EQ(analytic.shape(), inputs[input].shape());
    for (int direction = 0; direction < 3; ++direction) {
      constexpr double kStep = 1e-5;
      Tensor plus = inputs[input].clone(), minus = inputs[input].clone();
      double expected = 0, scale = 1e-3;
      for (int64_t k = 0; k < plus.elements(); ++k) {
        const double v = random.uniform() - 0.5;
        plus.as<double>()[k] += kStep * v;
        minus.as<double>()[k] -= kStep * v;
        expected += analytic.f64(k) * v;
        scale += std::fabs(analytic.f64(k) * v);
      }
      std::vector<Tensor> a = inputs, b = inputs;
      a[input] = plus, b[input] = minus;
      const double measured =
          (loss(op, problem.attributes, a, weights) - loss(op, problem.attributes, b, weights)) / (2 * kStep);
      EXPECT_NEAR(expected, measured, 2e-6 * scale);
    }
  }
}

TEST(Gradient, AgreesWithCentralDifferences) {
  int checked = 0;
  for (const OpSchema* op : catalogue()) {
    if (!has_gradient(*op) || op->name == "Elementwise") continue;
    for (std::string_view sample : op->samples) {
      SCOPED_TRACE(std::string(op->name) + " " + std::string(sample));
      try {
        const Problem problem = parse_problem(*op, in_f64(sample));
        int64_t elements = 0;
        for (const Operand& operand : problem.inputs) elements += operand.present() ? operand.elements() : 0;
        const bool all_f64 =
            problem.output().dtype == DType::kF64 && problem.input(0).dtype == DType::kF64;  // no Cast to f16
        if (elements > 4000 || problem.input(0).elements() == 0 || !all_f64) continue;
        const std::string reduction = problem.attributes.string("reduction", "");
        if (reduction == "mul" || reduction == "max" || reduction == "min") continue;  // scatters: refused by name
        check(*op, problem);
        ++checked;
      } catch (const std::exception& error) {
        ADD_FAILURE() << error.what();
      }
    }
  }
  EXPECT_GT(checked, 200);
}

TEST(Gradient, NamesWhatHasNone) {
  Graph graph;
  const ValueId x = graph.add_input("x", DType::kF32, Shape{4});
  const NodeId node = graph.add_node(*find_op("ReduceProd"), {x}, {}, 1, {}, "product");
  const ValueId y = graph.node(node).output();
  const ValueId dy = graph.add_input("dy", DType::kF32, graph.value(y).shape());
  try {
    add_gradients(graph, {y}, {dy}, {x});
    FAIL() << "ReduceProd has no gradient";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("product"), std::string::npos) << error.what();
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  }
}

TEST(Gradient, SelectStaysSelect) {
  // ELU at 100: reverse mode would multiply 0 by infinity.
  Graph graph;
  const ValueId x = graph.add_input("x", DType::kF64, Shape{2});
  const ValueId y = graph.node(graph.add_node(*find_op("Elu"), {x})).output();
  const ValueId dy = graph.add_input("dy", DType::kF64, Shape{2});
  graph.mark_output(add_gradients(graph, {y}, {dy}, {x})[0]);
  const Tensor d = run_reference(graph, {Tensor::of<double>({2}, {1000, -1}), Tensor::of<double>({2}, {1, 1})})[0];
  EXPECT_EQ(d.f64(0), 1);
  EXPECT_NEAR(d.f64(1), std::exp(-1), 1e-12);
}

}  // namespace
}  // namespace ridgeline
