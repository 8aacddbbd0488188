// Small graphs for tests of the optimizer, and the comparison with their references.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "optimize/passes.h"
#include "optimize/pipeline.h"
#include "session/session.h"
#include "verify/compare.h"
#include "verify/graph_tolerance.h"

namespace ridgeline {

// A small graph under construction: weights are seeded, names are given.
class G {
 public:
  Graph graph;
  ValueId input(const std::string& name, Shape shape, DType dtype = DType::kF32) {
    return graph.add_input(name, dtype, std::move(shape));
  }
  ValueId weight(Extents shape, double low = -1, double high = 1) {
    Tensor t(DType::kF32, shape);
    std::uniform_real_distribution<float> d{float(low), float(high)};
    for (int64_t i = 0; i < t.elements(); ++i) t.as<float>()[i] = d(random_);
    return graph.add_constant("w" + std::to_string(graph.value_count()), t);
  }
  ValueId scalar(float x) { return graph.add_constant("c" + std::to_string(graph.value_count()), Tensor::scalar(x)); }
  ValueId axes(std::vector<int64_t> a) {
    const int64_t n = int64_t(a.size());
    return graph.add_constant("a" + std::to_string(graph.value_count()), Tensor::from<int64_t>({n}, a));
  }
  ValueId op(const std::string& name, std::vector<ValueId> in, Attributes attributes = {}, int outputs = 1) {
    const NodeId id = graph.add_node(*find_op(name), std::move(in), std::move(attributes), outputs, {},
                                     name + std::to_string(count_++));
    graph.node(id).origin = {graph.node(id).name};
    last = id;
    return graph.node(id).output();
  }
  ValueId conv(ValueId x, int64_t in, int64_t out, int64_t k = 3) {
    Attributes a;
    a.set("pads", std::vector<int64_t>{k / 2, k / 2, k / 2, k / 2});
    return op("Conv", {x, weight({out, in, k, k}), weight({out})}, a);
  }
  ValueId batch_norm(ValueId x, int64_t c, Attributes a = {}, int outputs = 1) {
    return op("BatchNormalization", {x, weight({c}, 0.5, 1.5), weight({c}), weight({c}), weight({c}, 0.5, 2)},
              std::move(a), outputs);
  }
  void output(ValueId v) { graph.mark_output(v); }
  NodeId last = kNoNode;

 private:
  std::mt19937 random_{7};
  int count_ = 0;
};

inline Attributes with(const std::string& name, AttributeValue v) {
  Attributes a;
  a.set(name, std::move(v));
  return a;
}

inline Decisions optimized(Graph& graph, Stage stage = Stage::kWholeGraph) {
  Decisions d;
  PipelineOptions options;
  options.stage = stage;
  run_passes(graph, options, d);
  for (const Decision& x : d.all) EXPECT_NE(x.reason_code, "unsound") << x.pass << ": " << x.reason;
  return d;
}

inline int count(const Graph& g, std::string_view op) {
  int n = 0;
  for (NodeId id : g.order()) n += g.node(id).is(op);
  return n;
}

inline bool refused(const Decisions& d, std::string_view pass, std::string_view code) {
  return std::any_of(d.all.begin(), d.all.end(), [&](const Decision& x) {
    return x.pass == pass && x.action == Action::kRefused && x.reason_code == code && !x.reason.empty();
  });
}

// The optimized graph, planned and run, against the untouched one on the references.
inline void expect_same(const Graph& before, const Graph& after, const Bindings& bindings = {}) {
  LoadOptions load;
  Model model = bind_model(before, load);
  for (auto& [name, extent] : bindings) model.bindings[name] = extent;
  const std::vector<Tensor> right = run_reference_graph(model.graph, model.feeds, 1);
  Graph copy = after;
  ConstantStore store;
  PlanOptions options;
  options.threads = 1;
  options.bindings = model.bindings;
  const auto plan = std::make_shared<const Plan>(make_plan(copy, options, store));
  EXPECT_TRUE(check_plan(*plan).empty()) << check_plan(*plan).front();
  Runner runner(plan, model.feeds);
  runner.executor().poison();
  runner.run();
  const double tolerance = graph_tolerance(model.graph, model.bindings) + 1e-7;
  for (size_t i = 0; i < right.size(); ++i)
    EXPECT_LE(max_error(runner.outputs()[i], right[i]), tolerance) << after.text();
}

inline void expect_fused(G& g, int nodes_left) {
  const Graph before = g.graph;
  optimized(g.graph);
  EXPECT_EQ(g.graph.live_nodes(), nodes_left) << g.graph.text();
  expect_same(before, g.graph);
}

}  // namespace ridgeline
