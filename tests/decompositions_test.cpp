// An operator that has a reference and decompositions means one thing: the matcher puts the operator in the place of
// any of its spellings.
#include <gtest/gtest.h>

#include "graph_maker.h"
#include "ir/builder.h"
#include "ops/catalogue.h"
#include "verify/check_parts.h"
#include "verify/compare.h"
#include "verify/graph_tolerance.h"
#include "verify/reference_run.h"

namespace ridgeline {
namespace {

TEST(Decompositions, EverySpellingAgreesWithTheReference) {
  int compared = 0;
  for (const OpSchema* op : catalogue()) {
    if (!op->reference || op->is_elementwise()) continue;
    for (std::string_view sample : op->samples) {
      const Problem problem = parse_problem(*op, sample);
      const std::vector<Tensor> given = fill_inputs(problem, 5);
      std::vector<ValueInfo> infos(given.size());
      std::vector<Tensor> present;
      for (size_t i = 0; i < given.size(); ++i) {
        if (!given[i]) continue;
        infos[i] = {given[i].dtype(), to_shape(given[i].shape()), std::nullopt, given[i]};
        present.push_back(given[i]);
      }
      const int outputs = int(problem.outputs.size());
      for (int spelling = 0; spelling < op->decompose.size(); ++spelling) {
        SCOPED_TRACE(fmt::format("{} {} spelling {}", op->name, sample, spelling));
        Graph graph;
        try {
          graph = decompose(*op, problem.attributes, infos, outputs, spelling);
        } catch (const Error&) {
          continue;  // a spelling need not have a form for every sample
        }
        if (graph.outputs.empty()) continue;
        const std::vector<Tensor> got = run_reference(graph, present);
        auto error = [&](const Attributes& attributes) {
          const std::vector<Tensor> want = run_reference(*op, attributes, given, outputs);
          double worst = 0;
          for (size_t o = 0; o < got.size(); ++o) worst = std::max(worst, max_error(got[o], want[o]));
          return worst;
        };
        // A spelling without a place for a number (attention without a scale) means its default.
        Attributes defaults;
        for (const auto& [name, value] : problem.attributes)
          if (!std::holds_alternative<double>(value)) defaults.set(name, value);
        EXPECT_LE(std::min(error(problem.attributes), error(defaults)), graph_tolerance(graph, {}));
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 50);
}

TEST(Decompositions, AttentionWithoutAScaleHasTheScaleOne) {
  G g;
  const Shape heads = {1, 2, 7, 16};
  const ValueId q = g.input("q", heads), k = g.input("k", heads), v = g.input("v", heads);
  const ValueId scores = g.op("MatMul", {q, g.op("Transpose", {k}, with("perm", std::vector<int64_t>{0, 1, 3, 2}))});
  g.output(g.op("MatMul", {g.op("Softmax", {scores}), v}));
  const Graph before = g.graph;
  optimized(g.graph);
  EXPECT_EQ(count(g.graph, "ScaledDotProductAttention"), 1);
  expect_same(before, g.graph);
}

}  // namespace
}  // namespace ridgeline
