// What readers found at the edges: results that a model leaves out, numbers that are not finite, sums that are too
// long.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "graph_maker.h"
#include "kernels/cpu/simd.h"
#include "onnx_model.h"
#include "session/session.h"

namespace ridgeline {
namespace {

std::vector<Tensor> planned_outputs(Model& model, const PipelineOptions& pipeline = {}) {
  ConstantStore store;
  CompileOptions options;
  options.plan.threads = 1;
  options.pipeline = pipeline;
  const Compiled compiled = compile(model, options, store);
  Runner runner(compiled.plan, model.feeds);
  runner.executor().poison();
  runner.run();
  return runner.outputs();
}

class AbsentResults : public OnnxTest {
 protected:
  // The plan's outputs are the reference's.
  void agrees() {
    Model model = bind_model(import(), {});
    const std::vector<Tensor> want = run_reference_graph(model.graph, model.feeds, 1);
    const std::vector<Tensor> got = planned_outputs(model);
    ASSERT_EQ(got.size(), want.size());
    for (size_t o = 0; o < got.size(); ++o) EXPECT_LT(max_error(got[o], want[o]), 1e-5) << "output " << o;
  }
};

TEST_F(AbsentResults, DynamicQuantizeLinearWithoutScaleAndZeroPoint) {
  input("x", {"3", "4"});
  node("DynamicQuantizeLinear", {"x"}, {"y"});
  output("y");
  agrees();
}

TEST_F(AbsentResults, SplitWithoutItsFirstPart) {
  opset(18);
  input("x", {"3", "4"});
  auto& split = node("Split", {"x"}, {"", "b"});
  set(split, "axis", int64_t{1});
  set(split, "num_outputs", int64_t{2});
  output("b");
  agrees();
}

TEST_F(AbsentResults, LayerNormalizationWithoutItsFirst) {
  input("x", {"3", "4"});
  raw_weight("s", {1, 2, 3, 4});
  node("LayerNormalization", {"x", "s"}, {"", "m", "v"});
  output("m");
  output("v");
  agrees();
}

TEST_F(AbsentResults, AttentionWithoutItsFirst) {
  opset(23);
  for (const char* name : {"q", "k", "v", "pk", "pv"}) input(name, {"1", "2", "3", "8"});
  node("Attention", {"q", "k", "v", "", "pk", "pv"}, {"", "present_k", "present_v"});
  output("present_k");
  output("present_v");
  agrees();
}

// Behind a shape that hangs on constants which only folding settles, everything hangs on the inputs' content, too: they
// are no constants for that.
TEST(ShapesOfConstants, LeaveTheInputsOpen) {
  G g;
  const ValueId table = g.graph.add_constant("table", Tensor::from<int64_t>({1, 2}, {1, 3}));
  const ValueId pads = g.op("Reshape", {g.op("Transpose", {table}), g.axes({2})});
  g.output(g.op("Relu", {g.op("Pad", {g.input("x", {5}), pads})}));
  const Model model = bind_model(std::move(g.graph), {});
  EXPECT_TRUE(model.value_inputs.empty());
  EXPECT_EQ(extents(model.graph.value(model.graph.outputs[0]).shape()), Extents({9}));
}

// Rows that quantization cannot express: not finite ones are NaN in whole, tiny ones zeros. The others are as they
// were.
TEST(LowBitEdges, RowsThatAreNotFiniteAndTinyRows) {
  for (const char* isa : {"native", "vnni", "avx512", "avx2", "scalar"}) {
    cpu::limit_isa(isa);
    G g;
    g.output(g.op("MatMul", {g.input("x", {5, 64}), g.weight({64, 96})}));
    Model model = bind_model(std::move(g.graph), {});
    float* x = model.feeds.at("x").as<float>();
    x[1 * 64 + 63] = std::numeric_limits<float>::infinity();
    x[2 * 64] = std::numeric_limits<float>::quiet_NaN();
    for (int i = 0; i < 64; ++i) x[3 * 64 + i] = 1e-38f;
    PipelineOptions options;
    options.lossy.insert("lower_to_int8");
    const Tensor y = planned_outputs(model, options)[0];
    cpu::limit_isa("native");
    for (int64_t j = 0; j < 96; ++j) {
      EXPECT_TRUE(std::isfinite(y.f64(j))) << isa;
      EXPECT_TRUE(std::isnan(y.f64(96 + j))) << isa;
      EXPECT_TRUE(std::isnan(y.f64(2 * 96 + j))) << isa;
      EXPECT_EQ(y.f64(3 * 96 + j), 0) << isa;
      EXPECT_TRUE(std::isfinite(y.f64(4 * 96 + j))) << isa;
    }
  }
}

// 131,072 products of 127 by 128 fill an i32: more are refused by the kernel and by the pass.
TEST(LowBitEdges, SumsThatWouldLeave32BitsAreRefused) {
  const OpSchema& op = *find_op("LowBitMatMul", "ridgeline");
  const auto refused = [&](int k, int scales) {
    const std::string words =
        fmt::format("LowBitMatMul a=f32[1,{0}] q=i8[32,{0}]! scale=f32[32,{1}]! act=i8", k, scales);
    const Problem p = parse_problem(op, words);
    for (const Kernel* kernel : kernels_of("LowBitMatMul"))
      if (kernel->name == "cpu.low_bit") return kernel->supports(p).reason;
    return std::string("no such kernel");
  };
  EXPECT_NE(refused(131104, 1).find("32 bits"), std::string::npos) << refused(131104, 1);
  EXPECT_EQ(refused(131072, 1).find("32 bits"), std::string::npos) << refused(131072, 1);

  G g;
  g.output(g.op("MatMul", {g.input("x", {1, 131104}), g.weight({131104, 1})}));
  PipelineOptions options;
  options.lossy.insert("lower_to_int8");
  Decisions decisions;
  run_passes(g.graph, options, decisions);
  EXPECT_TRUE(std::any_of(decisions.all.begin(), decisions.all.end(),
                          [](const Decision& d) { return d.reason_code == "too_long"; }));
}

TEST(LowBitEdges, ALossyPassCanBeSwitchedOff) {
  G g;
  g.output(g.op("MatMul", {g.input("x", {5, 64}), g.weight({64, 96})}));
  PipelineOptions options;
  options.lossy.insert("lower_to_int8");
  options.disabled.insert("lower_to_int8");
  Decisions decisions;
  run_passes(g.graph, options, decisions);
  EXPECT_EQ(count(g.graph, "LowBitMatMul"), 0);
}

}  // namespace
}  // namespace ridgeline
