// The three ways to choose among legal fusions.
#include <gtest/gtest.h>

#include "graph_maker.h"
#include "kernels/kernel.h"
#include "session/strategy.h"

namespace ridgeline {
namespace {

Model small() {
  G g;
  const ValueId x = g.input("x", {1, 16, 8, 8});
  const ValueId a = g.op("Relu", {g.conv(x, 16, 16)});
  const ValueId b = g.op("Add", {g.conv(a, 16, 16), x});
  g.output(g.op("Sigmoid", {g.op("Mul", {b, g.scalar(3)})}));
  return bind_model(std::move(g.graph), {});
}

CompileOptions options() {
  CompileOptions o;
  o.plan.threads = 1;
  return o;
}

TEST(Strategy, ExhaustiveIsNeverWorseThanCostNorCostThanGreedy) {
  const Model model = small();
  const StrategyResult greedy = choose_fusions(model, options(), Strategy::kGreedy);
  const StrategyResult cost = choose_fusions(model, options(), Strategy::kCost);
  const StrategyResult best = choose_fusions(model, options(), Strategy::kExhaustive);
  EXPECT_GE(greedy.rewrites, 3);
  EXPECT_TRUE(greedy.undone.empty());
  EXPECT_EQ(greedy.plans, 1);
  EXPECT_DOUBLE_EQ(cost.greedy_ns, greedy.chosen_ns);
  EXPECT_LE(cost.chosen_ns, greedy.chosen_ns);
  EXPECT_LE(best.chosen_ns, cost.chosen_ns);
  EXPECT_EQ(best.plans, 1 << best.rewrites);
}

TEST(Strategy, NoSingleRewriteLeftOutWouldBeBetter) {
  const Model model = small();
  const StrategyResult cost = choose_fusions(model, options(), Strategy::kCost);
  const StrategyResult best = choose_fusions(model, options(), Strategy::kExhaustive);
  EXPECT_DOUBLE_EQ(cost.chosen_ns, best.chosen_ns);
}

// Alone, at this shape and no other, it costs nothing; it never runs.
const Kernel kFastAlone = {
    .name = "test.fast_alone",
    .op = "Mish",
    .supports =
        [](const Problem& p) {
          return p.input(0).shape() == Extents{3, 5, 7, 11} ? yes() : no("planted");
        },
    .estimate = [](const Problem&, const Tile&, const Ceilings&) { return 1e-3; },
};

TEST(Strategy, AFusionThatIsPredictedToLoseIsLeftOut) {
  register_kernel(kFastAlone);
  G g;
  g.output(g.op("Tanh", {g.op("Mish", {g.input("x", {3, 5, 7, 11})})}));
  const Model model = bind_model(std::move(g.graph), {});
  EXPECT_TRUE(choose_fusions(model, options(), Strategy::kGreedy).undone.empty());
  for (const Strategy strategy : {Strategy::kCost, Strategy::kExhaustive}) {
    const StrategyResult result = choose_fusions(model, options(), strategy);
    EXPECT_EQ(result.rewrites, 1);
    EXPECT_EQ(result.undone.size(), 1u) << name(strategy);
    EXPECT_LT(result.chosen_ns, result.greedy_ns) << name(strategy);
  }
}

// x + y, normalized, plus x + y: greedy joins the first addition with the normalization, so that the last stands alone;
// as the normalization's epilogue it would save a read and a write of all.
TEST(Strategy, OfTwoWaysToJoinTheOneThatMovesLessIsFound) {
  G g;
  const ValueId sum = g.op("Add", {g.input("x", {64, 256}), g.input("y", {64, 256})});
  const ValueId y = g.op("LayerNormalization", {sum, g.weight({256}), g.weight({256})});
  g.output(g.op("Add", {sum, y}));
  const Model model = bind_model(std::move(g.graph), {});
  Ceilings ceilings;  // not this machine's: the estimates are the test's
  for (Rate* rate : {&ceilings.f32, &ceilings.bf16, &ceilings.u8s8}) *rate = {100, 100};
  for (auto* levels : {&ceilings.read_gb_s, &ceilings.copy_gb_s, &ceilings.write_gb_s}) levels->fill({50, 50});
  ceilings.special_per_ns.fill({2, 2});
  CompileOptions fixed = options();
  fixed.plan.ceilings = &ceilings;
  const StrategyResult greedy = choose_fusions(model, fixed, Strategy::kGreedy);
  EXPECT_TRUE(greedy.undone.empty());
  EXPECT_EQ(greedy.rewrites, 1);
  for (const Strategy strategy : {Strategy::kCost, Strategy::kExhaustive}) {
    const StrategyResult result = choose_fusions(model, fixed, strategy);
    ASSERT_EQ(result.undone.size(), 1u) << name(strategy);
    EXPECT_TRUE(result.undone.begin()->starts_with("fuse_add_normalization/")) << *result.undone.begin();
    EXPECT_LT(result.chosen_ns, greedy.chosen_ns) << name(strategy);
  }
}

TEST(Strategy, TooManyRewritesAreRefusedWithTheirNumber) {
  G g;
  ValueId v = g.input("x", {1, 8, 8, 8});
  for (int i = 0; i < kMostSubsetRewrites + 1; ++i) v = g.op("Relu", {g.conv(v, 8, 8)});
  g.output(v);
  const Model model = bind_model(std::move(g.graph), {});
  try {
    choose_fusions(model, options(), Strategy::kExhaustive);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("rewrites"), std::string::npos) << error.what();
  }
  EXPECT_THROW(parse_strategy("best"), Error);
}

}  // namespace
}  // namespace ridgeline
