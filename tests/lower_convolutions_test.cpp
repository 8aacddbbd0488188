// Convolutions in bf16: what is lowered, how it is stored, and what rounding may cost.
#include <gtest/gtest.h>

#include <cmath>

#include "graph_maker.h"
#include "kernels/cpu/matmul/dot/dot_micro.h"
#include "optimize/pipeline.h"

namespace ridgeline {
namespace {

// A stem, a pool, and a block whose shortcut is added again: its values are read as images and as residuals.
void small_resnet(G& g) {
  Attributes pool;
  pool.set("kernel_shape", std::vector<int64_t>{2, 2});
  pool.set("strides", std::vector<int64_t>{2, 2});
  const ValueId x = g.input("x", {1, 3, 18, 14});
  const ValueId stem = g.op("MaxPool", {g.op("Relu", {g.conv(x, 3, 16, 5)})}, pool);
  const ValueId inner = g.op("Relu", {g.conv(stem, 16, 24)});
  const ValueId sum = g.op("Relu", {g.op("Add", {g.conv(inner, 24, 16, 1), stem})});
  g.output(g.conv(sum, 16, 8));
  g.output(sum);
}

TEST(LowerConvolutions, StoresBf16BetweenThemAndF32Outside) {
  if (!cpu::dot_kernels(cpu::DotType::kBf16).tile) GTEST_SKIP() << "no dot products of bf16 here";
  G g;
  small_resnet(g);
  Model model = bind_model(g.graph, {});
  const std::vector<Tensor> right = run_reference_graph(model.graph, model.feeds, 1);
  Graph graph = model.graph;
  PipelineOptions options;
  options.lossy.insert("lower_to_bf16");
  Decisions decisions;
  run_passes(graph, options, decisions);
  for (const Decision& d : decisions.all) EXPECT_NE(d.reason_code, "unsound") << d.pass << ": " << d.reason;
  int narrow = 0;
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (!node.is("Conv") && !node.is("MaxPool")) continue;
    EXPECT_EQ(graph.value(node.input(0)).dtype(), DType::kBF16) << node.name;
    narrow += graph.value(node.output()).dtype() == DType::kBF16;
  }
  EXPECT_EQ(narrow, 3) << graph.text();  // stem, pool, and the block's first; the sum and the last are outputs

  ConstantStore store;
  PlanOptions plan_options;
  plan_options.threads = 1;
  const auto plan = std::make_shared<const Plan>(make_plan(graph, plan_options, store));
  for (const Step& step : plan->steps)
    EXPECT_EQ(step.call.kernel->name.find("reference"), std::string_view::npos) << step.name;
  Runner runner(plan, model.feeds);
  runner.executor().poison();
  runner.run();
  for (size_t i = 0; i < right.size(); ++i) {
    double error = 0, norm = 0;
    for (int64_t k = 0; k < right[i].elements(); ++k) {
      error += std::pow(runner.outputs()[i].f64(k) - right[i].f64(k), 2);
      norm += std::pow(right[i].f64(k), 2);
    }
    // Each of four layers rounds x, w and its result once, by 2^-9 at most, independently.
    EXPECT_LE(std::sqrt(error / norm), std::sqrt(4 * 3) * std::ldexp(1, -9));
    EXPECT_GT(std::sqrt(error / norm), 1e-5) << "nothing was rounded";
  }
}

}  // namespace
}  // namespace ridgeline
