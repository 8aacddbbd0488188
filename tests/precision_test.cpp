// The search for the lowest precisions inside a limit, and the file that keeps them.
#include <gtest/gtest.h>

#include "graph_maker.h"
#include "session/precision.h"

namespace ridgeline {
namespace {

Model three_products() {
  G g;
  ValueId v = g.input("x", {7, 96});
  for (int i = 0; i < 3; ++i) v = g.op("Tanh", {g.op("MatMul", {v, g.weight({96, 96}, -0.2, 0.2)})});
  g.output(v);
  return bind_model(std::move(g.graph), {});
}

PrecisionPlan search(Model& model, double limit) {
  PrecisionSearch options;
  options.max_error = limit;
  options.compile.plan.threads = 1;
  return search_precision(model, {model.feeds}, options);
}

// The error of the plan that an applied result gives, against f32.
double error_with(Model& model, const PrecisionPlan& precision) {
  CompileOptions options;
  options.plan.threads = 1;
  ConstantStore store;
  const Compiled plain = compile(model, options, store);
  apply_precision(precision, options.pipeline);
  const Compiled lowered = compile(model, options, store);
  Runner a(plain.plan, model.feeds), b(lowered.plan, model.feeds);
  a.run(), b.run();
  return max_error(b.outputs()[0], a.outputs()[0]);
}

TEST(Precision, StaysInsideTheLimitAndUsesIt) {
  Model model = three_products();
  int lowest = 0;
  for (const double limit : {1e-7, 1e-3, 3e-2, 1.0}) {
    const PrecisionPlan plan = search(model, limit);
    ASSERT_EQ(plan.layers.size(), 3u) << limit;
    EXPECT_LE(plan.error, limit);
    EXPECT_DOUBLE_EQ(error_with(model, plan), plan.error) << "the file does not give what was measured";
    const int lowered = 2 * plan.count("int8") + plan.count("bf16");
    EXPECT_GE(lowered, lowest) << "a wider limit lowers less: " << limit;
    lowest = lowered;
    for (const PrecisionLayer& layer : plan.layers) {
      EXPECT_GT(layer.int8_error, 0);
      EXPECT_GT(layer.bf16_error, 0);
    }
  }
  EXPECT_EQ(search(model, 1e-7).count("f32"), 3);
  EXPECT_EQ(search(model, 1.0).count("f32"), 0);
}

TEST(Precision, TheFileKeepsIt) {
  Model model = three_products();
  PrecisionPlan plan = search(model, 3e-2);
  plan.model_sha256 = "abc";
  plan.calibration = "given inputs";
  const PrecisionPlan back = PrecisionPlan::from_json(plan.to_json(), "f.json");
  EXPECT_EQ(back.to_json(), plan.to_json());
  EXPECT_DOUBLE_EQ(error_with(model, back), plan.error);
  for (const char* broken :
       {"", "{}", "[1]", R"({"format":"ridgeline precision 1","model_sha256":3})", R"({"format":"other"})"})
    EXPECT_THROW(PrecisionPlan::from_json(broken, "f.json"), Error) << broken;
}

}  // namespace
}  // namespace ridgeline
