// lower_to_bf16 on convolutions: which images are stored in bf16, what stays, and that the result is within the derived
// tolerance.
#include "golden_vision.h"
#include "kernels/kernel.h"
#include "verify/boundaries.h"

namespace ridgeline {
namespace {

bool multiplies_bf16() {
  return std::any_of(kernels_of("Conv").begin(), kernels_of("Conv").end(),
                     [](const Kernel* k) { return k->name == "cpu.conv_dot"; });
}

Decisions lowered(Graph& graph) {
  Decisions d;
  PipelineOptions options;
  options.lossy = {"lower_to_bf16"};
  run_passes(graph, options, d);
  for (const Decision& x : d.all) EXPECT_NE(x.reason_code, "unsound") << x.pass << ": " << x.reason;
  return d;
}

void expect_within(const Graph& graph) {
  Model model = bind_model(graph, {});
  VerifyOptions options;
  options.plan.threads = 1;
  options.pipeline.lossy = {"lower_to_bf16"};
  const Verification v = verify(model.graph, model.feeds, options);
  EXPECT_TRUE(v.ok) << v.wrong[0].value << ": " << v.wrong[0].error << " over " << v.wrong[0].tolerance;
  EXPECT_GT(v.max_error, 1e-5);  // it was rounded
  EXPECT_LT(v.max_error, 0.05);
}

TEST(LowerImages, ImagesBetweenConvolutionsAreNarrow) {
  if (!multiplies_bf16()) GTEST_SKIP() << "no kernel multiplies bf16 in convolutions";
  for (void (*build)(Vision&) : {resnet50, efficientnet, ppocr_detection}) {
    Vision g;
    build(g);
    const Graph before = g.graph;
    const Decisions d = lowered(g.graph);
    int narrow = 0, wide = 0;
    for (NodeId id : g.graph.order()) {
      const Node& node = g.graph.node(id);
      if (!node.is("Conv")) continue;
      EXPECT_EQ(g.graph.value(node.input(0)).dtype(), DType::kBF16) << node.name;
      EXPECT_EQ(g.graph.value(node.input(1)).dtype(), DType::kBF16) << node.name;
      ++(g.graph.value(node.output()).dtype() == DType::kBF16 ? narrow : wide);
    }
    EXPECT_GT(narrow, 3 * wide) << g.graph.text();
    for (ValueId v : g.graph.outputs) EXPECT_EQ(g.graph.value(v).dtype(), DType::kF32);
    expect_within(before);
  }
}

TEST(LowerImages, WhatAnotherStepReadsInF32StaysSo) {
  if (!multiplies_bf16()) GTEST_SKIP() << "no kernel multiplies bf16 in convolutions";
  Vision g;
  const ValueId x = g.conv2d(g.image(), {3, 32, 3, 1, 1, true});
  g.output(g.op("LpNormalization", {x}, with("axis", int64_t(1))));
  g.output(g.conv2d(x, {32, 16, 3, 1, 1, true}));
  const Graph before = g.graph;
  lowered(g.graph);
  int casts = 0;
  for (NodeId id : g.graph.order()) {
    const Node& node = g.graph.node(id);
    if (node.is("Conv")) EXPECT_EQ(g.graph.value(node.output()).dtype(), DType::kF32);
    casts += node.op == &elementwise_op() && g.graph.value(node.output()).dtype() == DType::kBF16;
  }
  EXPECT_EQ(casts, 2) << g.graph.text();  // of the input, and of the image that both read
  expect_within(before);
}

TEST(LowerImages, RefusesWeightsThatAreNotFinite) {
  if (!multiplies_bf16()) GTEST_SKIP() << "no kernel multiplies bf16 in convolutions";
  Vision g;
  Tensor w(DType::kF32, {8, 3, 1, 1});
  std::fill_n(w.as<float>(), w.elements(), std::numeric_limits<float>::infinity());
  g.output(g.op("Conv", {g.image(), g.graph.add_constant("w", w)}));
  EXPECT_TRUE(refused(lowered(g.graph), "lower_to_bf16", "not_finite"));
  EXPECT_EQ(g.graph.value(g.graph.outputs[0]).dtype(), DType::kF32);
}

TEST(LowerImages, OneNodeMayBeLeftOut) {
  if (!multiplies_bf16()) GTEST_SKIP() << "no kernel multiplies bf16 in convolutions";
  Vision g;
  const ValueId x = g.conv2d(g.image(), {3, 32, 3, 1, 1, true});
  const std::string first = g.graph.node(g.last).name;
  g.output(g.conv2d(x, {32, 16, 3, 1, 1, true}));
  Decisions d;
  PipelineOptions options;
  options.lossy = {"lower_to_bf16"};
  options.undone_nodes = {"lower_to_bf16/" + first};
  run_passes(g.graph, options, d);
  int narrow = 0;
  for (NodeId id : g.graph.order()) {
    const Node& node = g.graph.node(id);
    narrow += node.is("Conv") && g.graph.value(node.input(1)).dtype() == DType::kBF16;
  }
  EXPECT_EQ(narrow, 1) << g.graph.text();
}

}  // namespace
}  // namespace ridgeline
