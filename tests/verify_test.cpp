// Comparison, the suite's judgement, tolerances along a graph, boundaries and bisection with a planted wrong rewrite.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "ops/catalogue.h"
#include "verify/boundaries.h"
#include "verify/compare.h"
#include "verify/graph_tolerance.h"
#include "verify/reference_run.h"
#include "verify/suite.h"

namespace ridgeline {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

Tensor floats(const std::vector<float>& values) { return Tensor::from<float>({int64_t(values.size())}, values); }

TEST(Compare, MaxErrorIsRelativeToTheLargest) {
  EXPECT_EQ(max_error(floats({1, -4}), floats({1, -4})), 0);
  EXPECT_DOUBLE_EQ(max_error(floats({1.5, -4}), floats({1, -4})), 0.125);
  EXPECT_EQ(max_error(floats({kNaN, kInf}), floats({kNaN, kInf})), 0);
  EXPECT_TRUE(std::isinf(max_error(floats({kNaN, 1}), floats({0, 1}))));
  EXPECT_TRUE(std::isinf(max_error(floats({kInf}), floats({-kInf}))));
  EXPECT_TRUE(std::isinf(max_error(floats({1}), Tensor::of<double>({1}, {1}))));
}

TEST(Compare, DifferenceNamesTheFirst) {
  EXPECT_EQ(difference(floats({1, 2}), floats({1.0005f, 2})), "");
  EXPECT_EQ(difference(floats({1, 3}), floats({1, 2})), "1 of 2 differ, first at [1]: 3, right is 2");
  EXPECT_NE(difference(Tensor::of<int32_t>({1}, {4}), Tensor::of<int32_t>({1}, {5})), "");
  Closeness strict;
  strict.signed_zero = true;
  EXPECT_NE(difference(floats({0.0f}), floats({-0.0f}), strict), "");
  EXPECT_EQ(difference(floats({0.0f}), floats({-0.0f})), "");
}

TEST(Suite, RunsTheCasesOfOnnx) {
  const std::string data = "/usr/share/libonnx-testdata/data/node";
  if (!std::filesystem::exists(data)) GTEST_SKIP() << data << " is not installed";
  SuiteOptions options;
  options.run = [](const Graph& graph, const std::vector<Tensor>& inputs) { return run_reference(graph, inputs); };
  options.filter = "test_*conv*";
  const SuiteResult result = run_suite(data, options);
  EXPECT_GT(result.passed.size(), 15u);
  EXPECT_TRUE(result.wrong.empty()) << result.wrong.front().name << ": " << result.wrong.front().reason;
  options.run = [](Graph graph, const std::vector<Tensor>& inputs) {  // a runner that is wrong is found out
    std::vector<Tensor> y = run_reference(graph, inputs);
    for (Tensor& t : y) t = Tensor::zeros(t.dtype(), t.shape());
    return y;
  };
  EXPECT_FALSE(run_suite(data, options).wrong.empty());
}

/// y = relu(x * w + b), twice.
Graph two_layers() {
  Graph g;
  ValueId v = g.add_input("x", DType::kF32, Shape{3, 8});
  for (int layer = 0; layer < 2; ++layer) {
    const std::string n = std::to_string(layer);
    Tensor w(DType::kF32, {8, 8}), b(DType::kF32, {8});
    for (int64_t k = 0; k < 64; ++k) w.as<float>()[k] = float((k * 7 + layer) % 11 - 5) / 8;
    for (int64_t k = 0; k < 8; ++k) b.as<float>()[k] = float(k + 1) / 8;
    v = g.node(g.add_node(*find_op("MatMul"), {v, g.add_constant("w" + n, w)}, {}, 1, {"product" + n}, "matmul" + n))
            .output();
    v = g.node(g.add_node(*find_op("Add"), {v, g.add_constant("b" + n, b)}, {}, 1, {"sum" + n}, "add" + n)).output();
    v = g.node(g.add_node(*find_op("Relu"), {v}, {}, 1, {"y" + n}, "relu" + n)).output();
  }
  g.mark_output(v);
  return g;
}

std::map<std::string, Tensor> feeds_of_two_layers() {
  Tensor x(DType::kF32, {3, 8});
  for (int64_t k = 0; k < 24; ++k) x.as<float>()[k] = float(k % 7) / 4 - 0.6f;
  return {{"x", x}};
}

TEST(Tolerance, AccumulatesAlongTheGraph) {
  const Graph g = two_layers();
  const std::vector<double> t = value_tolerances(g);
  const double first = t[size_t(g.find_value("product0"))], last = t[size_t(g.find_value("y1"))];
  EXPECT_GT(first, 0);
  EXPECT_GT(last, 2 * first);
  EXPECT_EQ(last, graph_tolerance(g));
  EXPECT_EQ(t[size_t(g.find_value("w0"))], 0);
}

// In figures, so that no factor slips in: a product of 8 terms, an Add and a Relu, twice.
TEST(Tolerance, IsWhatIsDerived) {
  const double u = 0x1p-24;
  const double product = find_op("MatMul")->tolerance.ulps * u + 4 * std::sqrt(8.0) * u;
  const double add = find_op("Add")->tolerance.ulps * 2 * u, relu = find_op("Relu")->tolerance.ulps * 2 * u;
  EXPECT_NEAR(graph_tolerance(two_layers()), 2 * (product + add + relu), 1e-12);
  EXPECT_LT(graph_tolerance(two_layers()), 1e-5);
}

// A cast to f16 rounds what is exact by nothing more, and what is a little off the other way.
TEST(Tolerance, CastsToNarrowTypesAddAUnit) {
  auto graph = [](bool exact) {
    Graph g;
    ValueId v = g.add_input("x", DType::kF32, Shape{3, 8});
    if (!exact) v = g.node(g.add_node(*find_op("Exp"), {v})).output();
    Attributes to;
    to.set("to", int64_t(10));
    g.mark_output(g.node(g.add_node(*find_op("Cast"), {v}, to)).output());
    return g;
  };
  EXPECT_EQ(graph_tolerance(graph(true)), 0);
  EXPECT_GT(graph_tolerance(graph(false)), info(DType::kF16).epsilon);
  EXPECT_LT(graph_tolerance(graph(false)), 1.1 * info(DType::kF16).epsilon);
}

TEST(Boundaries, SoundModelIsOk) {
  VerifyOptions options;
  options.bisect = true;
  const Verification v = verify(two_layers(), feeds_of_two_layers(), options);
  EXPECT_TRUE(v.ok);
  EXPECT_LE(v.max_error, v.tolerance);
  EXPECT_GE(v.checked_boundaries, 2);
  EXPECT_EQ(v.culprit, "");
}

/// The pipeline, and then a rewrite that drops the first Relu, as one more decision.
void with_planted_fault(Graph& graph, const PipelineOptions& pipeline, Decisions& decisions) {
  PipelineOptions none = pipeline;
  none.none = true;
  run_passes(graph, none, decisions);
  decisions.most_applied = pipeline.most_rewrites;
  for (const char* pass : {"harmless", "planted", "harmless"}) {
    decisions.pass = pass;
    const bool planted = decisions.pass == "planted";
    for (NodeId id : graph.order()) {
      Node& node = graph.node(id);
      if (node.name != (planted ? "relu0" : "add1") || !decisions.allowed(node)) continue;
      decisions.apply({node.name}, 0, 0);
      if (!planted) continue;
      graph.replace_uses(node.output(), node.input(0));
      graph.remove(node);
    }
  }
}

TEST(Boundaries, BisectionNamesThePlantedRewrite) {
  VerifyOptions options;
  options.bisect = true;
  options.optimize = with_planted_fault;
  const Verification v = verify(two_layers(), feeds_of_two_layers(), options);
  EXPECT_FALSE(v.ok);
  EXPECT_GT(v.max_error, v.tolerance);
  EXPECT_EQ(v.culprit, "planted at 'relu0'");
}

TEST(ReferenceRun, NamesTheInputThatDoesNotFit) {
  Graph g;
  g.add_input("a", DType::kF32, Shape{Dim::symbol("n"), 3});
  g.add_input("b", DType::kF32, Shape{Dim::symbol("n")});
  EXPECT_EQ(bindings_of(g, {Tensor::zeros(DType::kF32, {4, 3}), Tensor::zeros(DType::kF32, {4})}).at("n"), 4);
  try {
    bindings_of(g, {Tensor::zeros(DType::kF32, {4, 3}), Tensor::zeros(DType::kF32, {5})});
    FAIL() << "5 is not 4";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'b'"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace ridgeline
