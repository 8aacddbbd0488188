// Quantized graphs on integers: what becomes of them, what is refused and why, that fusion changes no bit, and that
// verification tells a value between two levels from a wrong one.
#include <cmath>
#include <cstring>
#include <limits>

#include "golden_quantized.h"
#include "ir/reference.h"
#include "kernel_problem.h"
#include "optimize/quantization.h"
#include "verify/boundaries.h"

namespace ridgeline {
namespace {

std::vector<Tensor> run_with(const Graph& graph, const std::set<std::string, std::less<>>& disabled) {
  Model model = bind_model(graph, {});
  CompileOptions options;
  options.pipeline.disabled = disabled;
  options.plan.threads = 1;
  ConstantStore store;
  Runner runner(compile(model, options, store).plan, model.feeds);
  runner.run();
  std::vector<Tensor> copies;
  for (const Tensor& t : runner.outputs()) {
    copies.emplace_back(t.dtype(), t.shape());
    std::memcpy(copies.back().data(), t.data(), size_t(t.bytes()));
  }
  return copies;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && std::memcmp(a.data(), b.data(), size_t(a.bytes())) == 0;
}

TEST(Quantized, FusionChangesNoBit) {
  Vision g;
  quantized_resnet(g);
  // Every quantized value as an output as well: all must agree.
  Graph all = g.graph;
  for (NodeId id : g.graph.order())
    if (g.graph.node(id).is("QuantizeLinear")) all.mark_output(g.graph.node(id).output());
  const std::vector<Tensor> one_by_one =
      run_with(all, {"fuse_epilogues", "fuse_residuals", "fuse_elementwise", "channels_last"});
  const std::vector<Tensor> outputs = run_with(all, {});
  const std::vector<Tensor> fused = run_with(g.graph, {});
  ASSERT_EQ(outputs.size(), one_by_one.size());
  for (size_t o = 0; o < outputs.size(); ++o) EXPECT_TRUE(same_bits(outputs[o], one_by_one[o])) << o;
  EXPECT_TRUE(same_bits(fused[0], one_by_one[0]));
}

TEST(Quantized, NothingButItsEndsIsLeftInF32) {
  if (!sums_integers()) GTEST_SKIP() << "no kernel sums the integers of a convolution";
  Vision g;
  quantized_resnet(g);
  const Decisions d = optimized(g.graph);
  EXPECT_EQ(count(g.graph, "Conv") + count(g.graph, "MatMul") + count(g.graph, "Gemm"), 0) << g.graph.text();
  EXPECT_EQ(count(g.graph, "ConvInteger"), 8);
  EXPECT_EQ(count(g.graph, "MatMulInteger"), 1);
  EXPECT_EQ(count(g.graph, "QuantizeLinear") + count(g.graph, "DequantizeLinear") + count(g.graph, "Relu"), 0);
  for (NodeId id : g.graph.order()) {
    const Node& node = g.graph.node(id);
    const bool reads_bytes = node.is("ConvInteger") || node.is("MaxPool") || node.is("MatMulInteger");
    if (reads_bytes) EXPECT_EQ(info(g.graph.value(node.input(0)).dtype()).bits, 8) << node.name;
  }
}

// One product of dequantized operands, changed by `edit`, and what is said of it.
struct Product {
  Vision g;
  Qdq q{g};
  ValueId x = g.input("x", {4, 64}, DType::kU8);
  Decisions decisions;
  void finish(ValueId y) {
    g.output(q.quantize(y, 0.1f, 3));
    decisions = optimized(g.graph);
  }
};

TEST(Quantized, RefusesWhatASumWouldMixOrLose) {
  {
    Product p;  // a scale for each column of the first operand
    const ValueId x = p.g.op("DequantizeLinear", {p.x, p.q.scales(64, 0.1f)}, with("axis", int64_t(1)));
    p.finish(p.g.op("MatMul", {x, p.q.weights({64, 8}, 0.01f, 1)}));
    EXPECT_TRUE(refused(p.decisions, "integer_products", "per_axis"));
  }
  {
    Product p;  // a scale for each row of the weights
    p.finish(p.g.op("MatMul", {p.q.dequantize(p.x, 0.1f, 7), p.q.weights({64, 8}, 0.01f, 0)}));
    EXPECT_TRUE(refused(p.decisions, "integer_products", "per_axis"));
  }
  {
    Product p;
    p.finish(p.g.op("MatMul", {p.q.dequantize(p.x, 0.1f, 7), p.g.weight({64, 8})}));
    EXPECT_TRUE(refused(p.decisions, "integer_products", "weights_in_f32"));
  }
  {
    Product p;  // a scale that is computed
    const ValueId s = p.g.input("s", {});
    const ValueId x = p.g.op("DequantizeLinear", {p.x, s});
    p.finish(p.g.op("MatMul", {x, p.q.weights({64, 8}, 0.01f, 1)}));
    EXPECT_TRUE(refused(p.decisions, "integer_products", "scale"));
  }
  {
    Product p;
    const ValueId bias = p.g.input("bias", {8});
    p.finish(p.g.op("Gemm", {p.q.dequantize(p.x, 0.1f, 7), p.q.weights({64, 8}, 0.01f, 1), bias}));
    EXPECT_TRUE(refused(p.decisions, "integer_products", "bias"));
  }
  {
    Product p;  // 70,000 products of 255 by 127 leave 32 bits
    const ValueId x = p.g.input("long", {1, 70000}, DType::kU8);
    const ValueId w = p.g.op("DequantizeLinear", {p.q.numbers(DType::kI8, {70000, 1}, 127, 127), p.q.scale(0.01f)});
    p.finish(p.g.op("MatMul", {p.q.dequantize(x, 0.1f, 0), w}));
    EXPECT_TRUE(refused(p.decisions, "integer_products", "too_long"));
  }
}

TEST(Quantized, TakesGemmAsItIsWritten) {
  Product p;
  Attributes a = with("transB", int64_t(1));
  a.set("alpha", 0.5);
  a.set("beta", 2.0);
  const Graph before = [&] {
    p.g.output(p.q.quantize(
        p.g.op("Gemm", {p.q.dequantize(p.x, 0.1f, 7), p.q.weights({8, 64}, 0.01f), p.q.bias(8, 1e-3f)}, a), 0.1f, 3));
    return p.g.graph;
  }();
  p.decisions = optimized(p.g.graph);
  EXPECT_EQ(count(p.g.graph, "MatMulInteger"), 1) << p.g.graph.text();
  expect_same(before, p.g.graph);
}

TEST(Quantized, ActivationsGoOnlyWhereTheRangeMakesThem) {
  const auto left = [](int64_t zero, DType type, std::optional<std::pair<float, float>> clip, bool& told) {
    Vision g;
    Qdq q(g);
    const ValueId x = g.input("x", {2, 50});
    const ValueId y = clip ? g.op("Clip", {x, g.scalar(clip->first), g.scalar(clip->second)}) : g.op("Relu", {x});
    g.output(q.quantize(y, 0.05f, zero, type));
    const Graph before = g.graph;
    const Decisions d = optimized(g.graph);
    told = refused(d, "move_quantization", "range");
    expect_same(before, g.graph);
    return std::any_of(d.all.begin(), d.all.end(),
                       [](const Decision& x) { return x.pass == "move_quantization" && x.action == Action::kApplied; });
  };
  bool told = false;
  EXPECT_TRUE(left(0, DType::kU8, std::nullopt, told));
  EXPECT_TRUE(left(-128, DType::kI8, std::nullopt, told));
  EXPECT_FALSE(left(1, DType::kU8, std::nullopt, told));  // level 0 stands for -0.05
  EXPECT_TRUE(told);
  EXPECT_FALSE(left(0, DType::kI8, std::nullopt, told));
  EXPECT_TRUE(left(0, DType::kU8, std::pair(0.0f, 12.75f), told));  // 255 levels
  EXPECT_FALSE(left(0, DType::kU8, std::pair(0.0f, 12.7f), told));
  EXPECT_TRUE(told);
}

TEST(Quantized, DequantizationSinksBelowMoves) {
  Vision g;
  Qdq q(g);
  const ValueId a = g.input("a", {1, 16, 8, 8}, DType::kU8), b = g.input("b", {1, 16, 8, 8}, DType::kU8);
  Attributes pool = with("kernel_shape", std::vector<int64_t>{2, 2});
  pool.set("strides", std::vector<int64_t>{2, 2});
  ValueId x = g.op("Concat", {q.dequantize(a, 0.1f, 3), q.dequantize(b, 0.1f, 3)}, with("axis", int64_t(1)));
  x = g.op("Transpose", {x}, with("perm", std::vector<int64_t>{0, 2, 3, 1}));
  x = g.op("Reshape", {x, g.axes({64, 32})});
  g.output(q.quantize(x, 0.1f, 3));
  const Graph before = g.graph;
  const Decisions d = optimized(g.graph);
  EXPECT_EQ(g.graph.live_nodes(), 3) << g.graph.text();
  EXPECT_EQ(count(g.graph, "Concat") + count(g.graph, "Transpose") + count(g.graph, "Reshape"), 3);
  expect_same(before, g.graph);
}

TEST(Quantized, OtherScalesDoNotMeet) {
  Vision g;
  Qdq q(g);
  const ValueId a = g.input("a", {1, 16}, DType::kU8), b = g.input("b", {1, 16}, DType::kU8);
  g.output(q.quantize(g.op("Concat", {q.dequantize(a, 0.1f, 3), q.dequantize(b, 0.1f, 4)}, with("axis", int64_t(1))),
                      0.1f, 3));
  const Graph before = g.graph;
  EXPECT_TRUE(refused(optimized(g.graph), "move_quantization", "other_scale"));
  expect_same(before, g.graph);
}

// The Program against the operator's reference: ties, both ends of the range, infinities, NaN.
TEST(Quantized, ProgramsRoundAsTheStandardDoes) {
  std::vector<float> values = {0,
                               -0.0f,
                               1e30f,
                               -1e30f,
                               std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::quiet_NaN()};
  for (int k = -700; k < 700; ++k)
    for (const float off : {0.0f, 1e-6f, -1e-6f, 0.013f}) values.push_back((float(k) / 2 + off) * 0.0371f);
  for (const DType type : {DType::kU8, DType::kI8}) {
    for (const int32_t zero : {0, 3, type == DType::kU8 ? 255 : -128}) {
      Vision g;
      Qdq q(g);
      const int64_t n = int64_t(values.size());
      const ValueId x = g.input("x", {n});
      const ValueId bytes = q.quantize(x, 0.0371f, zero, type);
      g.output(bytes);
      g.output(q.dequantize(bytes, 0.0371f, zero, type));
      LoadOptions load;
      load.inputs["x"] = Tensor::from<float>({n}, values);
      Model model = bind_model(g.graph, load);
      const std::vector<Tensor> right = run_reference_graph(model.graph, model.feeds, 1);
      CompileOptions options;
      ConstantStore store;
      Runner runner(compile(model, options, store).plan, model.feeds);
      runner.run();
      for (int o : {0, 1}) EXPECT_TRUE(same_bits(runner.outputs()[size_t(o)], right[size_t(o)])) << name(type) << zero;
    }
  }
}

TEST(Quantized, LinearOperatorsSumIntegersToo) {
  if (!sums_integers()) GTEST_SKIP() << "no kernel sums the integers of a convolution";
  Vision g;
  Qdq q(g);
  const auto zeros = [&](DType type, int64_t n) { return q.numbers(type, {n}, 0, 0); };
  const ValueId x = g.input("x", {2, 8, 9, 7}, DType::kU8);
  Attributes a = with("group", int64_t(2));
  a.set("pads", std::vector<int64_t>{1, 1, 1, 1});
  ValueId y =
      g.op("QLinearConv",
           {x, q.scale(0.03f), q.zero(DType::kU8, 7), q.numbers(DType::kI8, {6, 4, 3, 3}, -90, 100), q.scales(6, 0.01f),
            zeros(DType::kI8, 6), q.scale(0.08f), q.zero(DType::kU8, 100), q.numbers(DType::kI32, {6}, -3000, 3000)},
           a);
  g.output(y);
  y = g.op("QLinearMatMul", {y, q.scale(0.08f), q.zero(DType::kU8, 100), q.numbers(DType::kI8, {7, 12}, -90, 100),
                             q.scales(12, 0.02f), zeros(DType::kI8, 12), q.scale(0.2f), q.zero(DType::kI8, -5)});
  g.output(y);
  // An operand without known scales stays right, in f32.
  y = g.op("QLinearMatMul", {y, g.input("s", {}), q.zero(DType::kI8, -5), q.numbers(DType::kI8, {12, 5}, -90, 100),
                             q.scale(0.02f), q.zero(DType::kI8, 3), q.scale(0.9f), q.zero(DType::kU8, 128)});
  g.output(y);
  const std::vector<Tensor> as_written = run_with(g.graph, {"expand_quantized"}), outputs = run_with(g.graph, {});
  for (size_t o = 0; o < outputs.size(); ++o) {
    double worst = 0, spread = 0;
    for (int64_t k = 0; k < outputs[o].elements(); ++k) {
      worst = std::max(worst, std::fabs(outputs[o].f64(k) - as_written[o].f64(k)));
      spread = std::max(spread, std::fabs(as_written[o].f64(k) - as_written[o].f64(0)));
    }
    EXPECT_GT(spread, 20) << o;
    EXPECT_LE(worst, o < 2 ? 1 : 2) << o;  // a level, where a product lies between two; the last one multiplies such
  }
  Model model = bind_model(g.graph, {});
  VerifyOptions verification;
  verification.plan.threads = 1;
  EXPECT_TRUE(verify(model.graph, model.feeds, verification).ok);
  optimized(g.graph);
  EXPECT_EQ(count(g.graph, "QLinearConv") + count(g.graph, "QLinearMatMul") + count(g.graph, "Conv"), 0);
  EXPECT_EQ(count(g.graph, "ConvInteger"), 1);
  EXPECT_EQ(count(g.graph, "MatMulInteger"), 1);
  EXPECT_EQ(count(g.graph, "MatMul"), 1);
}

TEST(Quantized, VerificationKnowsAWrongScaleFromARoundingThatWentTheOtherWay) {
  if (!sums_integers()) GTEST_SKIP() << "no kernel sums the integers of a convolution";
  Vision g;
  quantized_resnet(g);
  Model model = bind_model(g.graph, {});
  VerifyOptions options;
  options.plan.threads = 1;
  const Verification right = verify(model.graph, model.feeds, options);
  EXPECT_TRUE(right.ok) << right.wrong[0].value;
  EXPECT_GT(right.restarts, 5);
  options.optimize = [](Graph& graph, const PipelineOptions& pipeline, Decisions& decisions) {
    run_passes(graph, pipeline, decisions);
    for (NodeId id : graph.order()) {
      Node& node = graph.node(id);
      if (!node.is("ConvInteger") || int(node.inputs.size()) <= node.op_inputs) continue;
      const int at = node.op_inputs;
      Tensor scale(DType::kF32, graph.constant(node.input(at))->shape());
      for (int64_t k = 0; k < scale.elements(); ++k)  // one part in fifty
        scale.as<float>()[k] = graph.constant(node.input(at))->as<float>()[k] * 1.02f;
      graph.set_input(node, at, graph.add_constant({}, scale));
      return;
    }
  };
  const Verification wrong = verify(model.graph, model.feeds, options);
  EXPECT_FALSE(wrong.ok);
  EXPECT_LT(wrong.max_error, wrong.tolerance);  // which the outputs alone would not have told
}

}  // namespace
}  // namespace ridgeline
