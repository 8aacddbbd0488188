// Passes in any subset and order, and by name.
#include "graph_maker.h"

namespace ridgeline {
namespace {

ValueId reshaped(G& g, ValueId x, std::vector<int64_t> shape) { return g.op("Reshape", {x, g.axes(std::move(shape))}); }

// Over rows of three axes, as transformers have them.
ValueId spelled_norm(G& g, ValueId image) {
  const ValueId x = reshaped(g, image, {4, 6, 6});
  auto mean = [&](ValueId v) { return g.op("ReduceMean", {v, g.axes({-1})}, with("keepdims", int64_t(1))); };
  const ValueId d = g.op("Sub", {x, mean(x)});
  const ValueId root = g.op("Sqrt", {g.op("Add", {mean(g.op("Mul", {d, d})), g.scalar(1e-2f)})});
  const ValueId y = g.op("Add", {g.op("Mul", {g.op("Div", {d, root}), g.weight({6}, 0.5, 2)}), g.weight({6})});
  return reshaped(g, y, {1, 4, 6, 6});
}

ValueId attention(G& g, ValueId q, ValueId k, ValueId v) {
  const ValueId scores = g.op("MatMul", {q, g.op("Transpose", {k}, with("perm", std::vector<int64_t>{0, 1, 3, 2}))});
  return g.op("MatMul", {g.op("Softmax", {g.op("Mul", {scores, g.scalar(0.1f)})}), v});
}

// A cast there and back. (Through a wider type: where a narrower one rounds, nearly equal inputs may part.)
ValueId through(G& g, ValueId x, DType dtype) {
  const ValueId there = g.op("Cast", {x}, with("to", int64_t(dtype == DType::kF64 ? 11 : 10)));
  return g.op("Cast", {g.op("Relu", {there})}, with("to", int64_t(1)));
}

// Random graphs, random subsets of passes, random order: never unsound, never another function.
TEST(Passes, AnySubsetInAnyOrderKeepsTheFunction) {
  std::mt19937 random(20260101);
  auto pick = [&](int n) { return int(random() % unsigned(n)); };
  for (int round = 0; round < 60; ++round) {
    G g;
    std::vector<ValueId> live = {g.input("x", {1, 4, 6, 6}), g.input("y", {1, 4, 6, 6})};
    for (int n = 0; n < 14; ++n) {
      const ValueId a = live[size_t(pick(int(live.size())))], b = live[size_t(pick(int(live.size())))];
      switch (pick(15)) {
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
        case 9:
          live.push_back(g.op("LayerNormalization", {g.op("Add", {a, b}), g.weight({6}, 0.5, 2), g.weight({6})}));
          break;
        case 10:
          live.push_back(spelled_norm(g, a));
          break;
        case 11:
          live.push_back(attention(g, a, b, live[size_t(pick(int(live.size())))]));
          break;
        case 12:
          live.push_back(g.op("Add", {g.op("MatMul", {a, g.weight({6, 6})}), g.weight({6})}));
          break;
        case 13:
          live.push_back(through(g, a, DType::kF64));
          break;
        case 14:
          live.push_back(g.op("MatMul", {g.op("Softmax", {a}), b}));
          break;
      }
    }
    g.output(live.back());
    if (pick(2)) g.output(live[size_t(pick(int(live.size())))]);
    Graph after = g.graph;
    std::vector<const Pass*> order;
    for (const Pass& p : passes())
      if (pick(3) && p.pass_class != PassClass::kLossy) order.push_back(&p);
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
    for (const Pass& p : passes()) {  // those that round leave a sound graph, if not the same function
      if (p.pass_class != PassClass::kLossy) continue;
      Decisions d;
      d.pass = std::string(p.name);
      p.run(after, d);
      ASSERT_TRUE(after.verify().empty()) << p.name << ": " << after.verify().front();
    }
  }
}

// The fuzzer's graphs hold what the composites are made of, or it could not break them.
TEST(Passes, TheRandomGraphsAreFused) {
  G g;
  const ValueId x = g.input("x", {1, 4, 6, 6}), y = g.input("y", {1, 4, 6, 6});
  g.output(spelled_norm(g, attention(g, x, y, x)));
  const Decisions d = optimized(g.graph);
  EXPECT_EQ(count(g.graph, "LayerNormalization"), 1) << g.graph.text();
  EXPECT_EQ(count(g.graph, "ScaledDotProductAttention"), 1) << g.graph.text();
}

// Lifted by a power of two and lowered again: the same bits, and no denormal is multiplied.
TEST(Passes, WeightsWithDenormalsAreLifted) {
  G g;
  const ValueId x = g.input("x", {1, 48, 1, 1});
  Tensor w(DType::kF32, {20, 48, 1, 1});
  for (int64_t k = 0; k < w.elements(); ++k)
    w.as<float>()[k] = k % 3 == 0 ? 1e-41f * float(k + 1) : 0.01f * float(k % 17 - 8);
  const ValueId conv = g.op("Conv", {x, g.graph.add_constant("w", w), g.weight({20})});
  g.output(g.op("Relu", {conv}));
  Graph before = g.graph;
  PipelineOptions options;
  Decisions decisions;
  run_passes(g.graph, options, decisions);
  for (ValueId v = 0; v < g.graph.value_count(); ++v) {
    const Tensor* t = g.graph.uses(v) ? g.graph.constant(v) : nullptr;
    for (int64_t k = 0; t && t->dtype() == DType::kF32 && k < t->elements(); ++k)
      EXPECT_FALSE(t->as<float>()[k] != 0 && std::fabs(t->as<float>()[k]) < 1.17549435e-38f) << g.graph.text();
  }
  const auto outputs = [&](bool none) {
    Model model = bind_model(before, {});
    CompileOptions compiling;
    compiling.pipeline.none = none;
    ConstantStore store;
    Runner runner(compile(model, compiling, store).plan, model.feeds);
    runner.run();
    const Tensor& y = runner.outputs()[0];
    return std::vector<float>(y.as<float>(), y.as<float>() + y.elements());
  };
  const std::vector<float> right = outputs(true), got = outputs(false);
  double most = 0;
  for (size_t k = 0; k < right.size(); ++k) {
    EXPECT_NEAR(got[k], right[k], 1e-6);
    most = std::max(most, double(right[k]));
  }
  EXPECT_GT(most, 0.1);
  EXPECT_EQ(g.graph.order().size(), 1u) << g.graph.text();
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
