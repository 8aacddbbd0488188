// Passes in any subset and order, and by name.
#include "graph_maker.h"

namespace ridgeline {
namespace {

// Random graphs, random subsets of passes, random order: never unsound, never another function.
TEST(Passes, AnySubsetInAnyOrderKeepsTheFunction) {
  std::mt19937 random(20260101);
  auto pick = [&](int n) { return int(random() % unsigned(n)); };
  for (int round = 0; round < 60; ++round) {
    G g;
    std::vector<ValueId> live = {g.input("x", {1, 4, 6, 6}), g.input("y", {1, 4, 6, 6})};
    for (int n = 0; n < 14; ++n) {
      const ValueId a = live[size_t(pick(int(live.size())))], b = live[size_t(pick(int(live.size())))];
      switch (pick(9)) {
        case 0:
          live.push_back(g.conv(a, 4, 4));
          break;
        case 1:
          live.push_back(g.batch_norm(a, 4));
          break;
        case 2:
          live.push_back(g.op("Relu", {a}));
          break;
        case 3:
          live.push_back(g.op("Add", {a, b}));
          break;
        case 4:
          live.push_back(g.op("Mul", {a, g.weight({4, 1, 1})}));
          break;
        case 5:
          live.push_back(g.op("Mul", {a, g.op("Sigmoid", {a})}));
          break;
        case 6:
          live.push_back(g.op("Transpose", {g.op("Transpose", {a}, with("perm", std::vector<int64_t>{0, 2, 3, 1}))},
                              with("perm", std::vector<int64_t>{0, 3, 1, 2})));
          break;
        case 7:
          live.push_back(g.op("Identity", {a}));
          break;
        case 8:
          live.push_back(g.op("Sub", {a, g.scalar(0.5f)}));
          break;
      }
    }
    g.output(live.back());
    if (pick(2)) g.output(live[size_t(pick(int(live.size())))]);
    Graph after = g.graph;
    std::vector<const Pass*> order;
    for (const Pass& p : passes())
      if (pick(3)) order.push_back(&p);
    std::shuffle(order.begin(), order.end(), random);
    std::string names;
    for (const Pass* p : order) {
      Decisions d;
      d.pass = std::string(p->name);
      p->run(after, d);
      names += std::string(p->name) + " ";
      const std::vector<std::string> faults = after.verify();
      ASSERT_TRUE(faults.empty()) << "round " << round << ": " << names << ": " << faults.front();
    }
    SCOPED_TRACE(fmt::format("round {}: {}", round, names));
    expect_same(g.graph, after);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(Passes, EachHasANameAStageAndCanBeSwitchedOff) {
  EXPECT_GE(passes().size(), 8u);
  for (const Pass& p : passes()) {
    EXPECT_EQ(find_pass(p.name), &p);
    EXPECT_FALSE(p.what.empty());
    G g;
    const ValueId x = g.input("x", {1, 4, 6, 6});
    g.output(g.op("Relu", {g.op("Add", {g.batch_norm(g.conv(x, 4, 4), 4), x})}));
    PipelineOptions options;
    options.disabled.insert(std::string(p.name));
    Decisions d;
    run_passes(g.graph, options, d);
    for (const Decision& x2 : d.all) EXPECT_NE(x2.pass, p.name);
  }
}

}  // namespace
}  // namespace ridgeline
