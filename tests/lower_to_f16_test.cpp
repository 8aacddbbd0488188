// lower_to_f16: the whole graph in f16, in every stage of the ladder; what stays f32 and why; results within the
// derived tolerance.
#include "golden_sequence.h"
#include "verify/boundaries.h"

namespace ridgeline {
namespace {

Decisions lowered(Graph& graph, Stage stage = Stage::kWholeGraph) {
  Decisions d;
  PipelineOptions options;
  options.stage = stage;
  options.lossy = {"lower_to_f16"};
  run_passes(graph, options, d);
  for (const Decision& x : d.all) EXPECT_NE(x.reason_code, "unsound") << x.pass << ": " << x.reason;
  return d;
}

/// Names of the f32 values that nodes write, the graph's outputs apart.
std::vector<std::string> wide_values(const Graph& graph) {
  std::vector<std::string> names;
  for (NodeId id : graph.order())
    for (ValueId v : graph.node(id).outputs)
      if (v != kNoValue && graph.value(v).dtype() == DType::kF32 && !graph.value(v).is_output)
        names.push_back(graph.value(v).name);
  return names;
}

void expect_within(const Graph& graph, Stage stage) {
  Model model = bind_model(graph, {});
  VerifyOptions options;
  options.plan.threads = 1;
  options.pipeline.lossy = {"lower_to_f16"};
  options.pipeline.stage = stage;
  const Verification v = verify(model.graph, model.feeds, options);
  EXPECT_TRUE(v.ok) << v.wrong[0].value << " by " << v.wrong[0].node << ": " << v.wrong[0].error << " over "
                    << v.wrong[0].tolerance;
  EXPECT_GT(v.max_error, 1e-5);  // it was rounded
  EXPECT_LT(v.max_error, 0.01);
  EXPECT_LT(v.tolerance, 0.2);
  EXPECT_GT(v.checked_boundaries, 3);
}

TEST(LowerToF16, NothingInsideStaysWideInAnyStage) {
  const auto check = [](const Graph& before, Stage stage) {
    Graph graph = before;
    lowered(graph, stage);
    EXPECT_EQ(wide_values(graph), std::vector<std::string>()) << graph.text();
    for (ValueId v : graph.inputs) EXPECT_NE(graph.value(v).dtype(), DType::kF16);
    for (ValueId v : graph.outputs) EXPECT_EQ(graph.value(v).dtype(), DType::kF32);
    expect_within(before, stage);
  };
  for (int s = 0; s < kStageCount; ++s) {
    Vision resnet;
    resnet50(resnet);
    check(resnet.graph, Stage(s));
    for (void (*build)(Sequence&) : {bert, vit}) {
      Sequence g;
      build(g);
      check(g.graph, Stage(s));
    }
  }
}

TEST(LowerToF16, BlocksAreFoundAsInF32) {
  const auto composites = [](bool narrow) {
    Sequence g;
    bert(g);
    if (narrow)
      lowered(g.graph);
    else
      optimized(g.graph);
    return std::pair(count(g.graph, "ScaledDotProductAttention"), count(g.graph, "AddLayerNormalization"));
  };
  EXPECT_EQ(composites(true), composites(false));
  EXPECT_EQ(composites(true).first, 2);
}

TEST(LowerToF16, ConstantsOutOfRangeStay) {
  for (const float wrong : {1e5f, -3.4e38f, 1e-12f}) {
    Vision g;
    const ValueId x = g.op("Relu", {g.image()});
    const ValueId product = g.op("Mul", {x, g.scalar(wrong)});
    g.output(g.op("Relu", {g.op("Add", {product, g.scalar(1)})}));
    const Decisions d = lowered(g.graph, Stage::kUnfused);
    EXPECT_TRUE(refused(d, "lower_to_f16", "range"));
    EXPECT_EQ(wide_values(g.graph), std::vector<std::string>{g.graph.value(product).name});
    EXPECT_EQ(count(g.graph, "Cast"), 0) << g.graph.text();
  }
  for (const float wrong : {1e5f, std::numeric_limits<float>::infinity()}) {
    Vision g;
    Tensor w(DType::kF32, {8, 3, 1, 1});
    std::fill_n(w.as<float>(), w.elements(), wrong);
    const ValueId x = g.conv2d(g.image(), {3, 3, 3});
    g.output(g.op("Softmax", {g.op("Conv", {x, g.graph.add_constant("w", w)})}));
    EXPECT_TRUE(refused(lowered(g.graph, Stage::kUnfused), "lower_to_f16", "range"));
    EXPECT_EQ(count(g.graph, "Cast"), 4) << g.graph.text();  // in, around the second Conv, out
  }
}

TEST(LowerToF16, AnglesStay) {
  Vision g;
  const ValueId positions = g.op("Mul", {g.op("Relu", {g.input("positions", {4096, 1})}), g.weight({1, 8})});
  g.output(g.op("Softmax", {g.op("Cos", {positions})}));
  EXPECT_TRUE(refused(lowered(g.graph, Stage::kUnfused), "lower_to_f16", "angle"));
  EXPECT_EQ(wide_values(g.graph).size(), 2U) << g.graph.text();
}

TEST(LowerToF16, AMaskEndsAtTheLeastNumber) {
  Sequence g;
  const ValueId scores = g.input("scores", {2, 3});
  Tensor mask(DType::kF32, {2, 3});
  const float values[] = {0, -3.4028235e38f, 0, -3.4028235e38f, -3.4028235e38f, -3.4028235e38f};  // a row without any
  std::copy_n(values, 6, mask.as<float>());
  g.output(g.softmax(g.op("Add", {scores, g.graph.add_constant("mask", mask)})));
  const Graph before = g.graph;
  const Decisions d = lowered(g.graph);
  EXPECT_FALSE(refused(d, "lower_to_f16", "range"));
  EXPECT_EQ(wide_values(g.graph), std::vector<std::string>());
  Model model = bind_model(g.graph, {});
  const std::vector<Tensor> y = run_reference_graph(model.graph, model.feeds, 1);
  EXPECT_EQ(y[0].f64(1), 0);
  EXPECT_GT(y[0].f64(0), 0);
  for (int64_t i = 3; i < 6; ++i) EXPECT_NEAR(y[0].f64(i), 1.0 / 3, 0.3);  // no NaN
}

TEST(LowerToF16, OperandsThatAreNoDataStay) {
  Vision g;
  const ValueId x = upsampled(g, g.norm(g.conv2d(g.image(), {3, 8, 3}), 8));
  g.output(g.op("QuantizeLinear", {x, g.scalar(0.1f)}));
  const Decisions d = lowered(g.graph, Stage::kUnfused);
  EXPECT_TRUE(refused(d, "lower_to_f16", "stays_f32"));
  for (NodeId id : g.graph.order()) {
    const Node& node = g.graph.node(id);
    if (node.is("Resize")) {
      EXPECT_EQ(g.graph.value(node.input(2)).dtype(), DType::kF32);
    }
    if (node.is("BatchNormalization")) {
      EXPECT_EQ(g.graph.value(node.input(4)).dtype(), DType::kF32);
    }
    if (node.is("Conv")) {
      EXPECT_EQ(g.graph.value(node.input(1)).dtype(), DType::kF16);
    }
    if (node.is("QuantizeLinear")) {
      EXPECT_EQ(g.graph.value(node.input(0)).dtype(), DType::kF32);
    }
  }
  EXPECT_EQ(count(g.graph, "Cast"), 2) << g.graph.text();
}

TEST(LowerToF16, AGuardOfADivisionDoesNotVanish) {
  Vision g;
  const ValueId x = g.image();
  const ValueId zero = g.op("Sub", {x, x});
  g.output(g.op("Div", {zero, g.op("Add", {zero, g.scalar(1e-12f)})}));
  lowered(g.graph, Stage::kUnfused);
  Model model = bind_model(g.graph, {});
  const std::vector<Tensor> y = run_reference_graph(model.graph, model.feeds, 1);
  for (int64_t i = 0; i < y[0].elements(); ++i) ASSERT_EQ(y[0].f64(i), 0);
}

TEST(LowerToF16, OneNodeMayBeLeftOut) {
  Vision g;
  const ValueId x = g.conv2d(g.image(), {3, 32, 3, 1, 1, true});
  const std::string first = g.graph.node(g.last).name;
  g.output(g.conv2d(x, {32, 16, 3, 1, 1, true}));
  Decisions d;
  PipelineOptions options;
  options.lossy = {"lower_to_f16"};
  options.undone_nodes = {"lower_to_f16/" + first};
  run_passes(g.graph, options, d);
  for (NodeId id : g.graph.order()) {
    const Node& node = g.graph.node(id);
    if (node.is("Conv")) {
      EXPECT_EQ(g.graph.value(node.input(1)).dtype(), node.name == first ? DType::kF32 : DType::kF16) << g.graph.text();
    }
  }
}

}  // namespace
}  // namespace ridgeline
