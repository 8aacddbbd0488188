// Deterministic plans: the same bits for any number of threads, whatever the machine's ceilings say.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "formats/make/make.h"
#include "kernels/kernel.h"
#include "session/session.h"
#include "session/sessions.h"

namespace ridgeline {
namespace {

Tensor noise(Extents shape, int seed) {
  Tensor t(DType::kF32, std::move(shape));
  for (int64_t i = 0; i < t.elements(); ++i) t.as<float>()[i] = float((i * 7919 + seed * 104729) % 2003 - 1001) / 997;
  return t;
}

// Operators whose work is cut along a sum, or whose kernel is another for more threads.
Graph network() {
  Graph g;
  g.name = "network";
  const ValueId x = g.add_input("x", DType::kF32, Shape{1, 16, 30, 30});
  Attributes pads;
  pads.set("pads", std::vector<int64_t>{1, 1, 1, 1});
  const ValueId a =
      g.node(g.add_node(*find_op("Conv"), {x, g.add_constant("w", noise({32, 16, 3, 3}, 1))}, pads)).output();
  const ValueId r = g.node(g.add_node(*find_op("Relu"), {a})).output();
  const ValueId f = g.node(g.add_node(*find_op("Flatten"), {r})).output();
  const ValueId y =
      g.node(g.add_node(*find_op("MatMul"), {f, g.add_constant("m", noise({32 * 30 * 30, 40}, 2))}, {}, 1, {"y"}))
          .output();
  g.mark_output(y);
  const ValueId s = g.node(g.add_node(*find_op("ReduceSum"), {f}, {}, 1, {"s"})).output();
  g.mark_output(s);
  const ValueId q = g.add_input("q", DType::kF32, Shape{1, 2, 48, 32});
  const ValueId k = g.add_input("k", DType::kF32, Shape{1, 2, 3000, 32});
  const ValueId v = g.add_input("v", DType::kF32, Shape{1, 2, 3000, 32});
  const ValueId t =
      g.node(g.add_node(*find_op("ScaledDotProductAttention", "ridgeline"), {q, k, v}, {}, 1, {"t"})).output();
  g.mark_output(t);
  return g;
}

std::vector<Tensor> outputs(const Model& given, int threads, bool deterministic, const Ceilings& ceilings) {
  Model model = given;
  ConstantStore store;
  CompileOptions options;
  options.plan.threads = threads;
  options.plan.deterministic = deterministic;
  options.plan.ceilings = &ceilings;
  const Compiled compiled = compile(model, options, store);
  EXPECT_EQ(compiled.plan->threads, threads);
  EXPECT_EQ(compiled.plan->lanes, deterministic ? kDeterministicLanes : threads);
  Runner runner(compiled.plan, given.feeds);
  runner.executor().poison();
  runner.run();
  std::vector<Tensor> out;
  for (const Tensor& t : runner.outputs()) out.push_back(t.clone());
  return out;
}

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i)
    same = a[i].bytes() == b[i].bytes() && std::memcmp(a[i].data(), b[i].data(), size_t(a[i].bytes())) == 0;
  return same;
}

// A kernel from outside that does what none of ours does: a float sum for each thread, then their sum.
bool split_sum_stands_by = false;
const Kernel kSplitSum = {
    .name = "test.split_sum",
    .op = "ReduceSum",
    .supports =
        [](const Problem& p) {
          return split_sum_stands_by && p.output().elements() == 1 && p.input(0).layout.is_row_major() ? yes()
                                                                                                       : no("not here");
        },
    .estimate = [](const Problem&, const Tile&, const Ceilings&) { return 0.0; },
    .workspace = [](const Problem& p, const Tile&) { return int64_t(p.threads) * 64; },
    .run =
        [](const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
          const float* x = static_cast<const float*>(buffers.inputs[0]);
          float* sums = static_cast<float*>(buffers.workspace);
          for (int t = 0; t < call.problem.threads; ++t) sums[t * 16] = 0;
          pool.run(call.problem.input(0).elements(), 16, [&](int64_t begin, int64_t end, int thread) {
            for (int64_t i = begin; i < end; ++i) sums[thread * 16] += x[i];
          });
          float total = 0;
          for (int t = 0; t < call.problem.threads; ++t) total += sums[t * 16];
          *static_cast<float*>(buffers.outputs[0]) = total;
        },
};

// Ceilings of another machine: arithmetic is slow, memory fast.
Ceilings other_ceilings() {
  Ceilings c = unmeasured_ceilings(1);
  c.f32 = {3, 3};
  for (auto* rates : {&c.read_gb_s, &c.copy_gb_s, &c.write_gb_s})
    for (Rate& rate : *rates) rate = {500, 500};
  return c;
}

TEST(DeterministicPlan, SameBitsForAnyNumberOfThreads) {
  split_sum_stands_by = true;
  register_kernel(kSplitSum);
  const Model model = bind_model(network(), {});
  const Ceilings here = unmeasured_ceilings(4), other = other_ceilings();
  const std::vector<Tensor> one = outputs(model, 1, true, here);
  for (int threads : {2, 3, 5, 8, 11}) EXPECT_TRUE(same_bits(outputs(model, threads, true, here), one)) << threads;
  EXPECT_TRUE(same_bits(outputs(model, 2, true, other), one));
  // The control: without it they differ.
  const std::vector<Tensor> free = outputs(model, 1, false, here);
  for (int threads : {2, 3, 5, 8}) EXPECT_FALSE(same_bits(outputs(model, threads, false, here), free)) << threads;
  split_sum_stands_by = false;
}

TEST(DeterministicPlan, WholeModel) {
  const std::string path = testing::TempDir() + "/deterministic-mobilenet.onnx";
  make_model("mobilenet_v3", {}, path);
  LoadOptions load;
  const Model model = load_model(path, load);
  const Ceilings here = unmeasured_ceilings(2);
  const std::vector<Tensor> one = outputs(model, 1, true, here);
  for (int threads : {2, 4}) EXPECT_TRUE(same_bits(outputs(model, threads, true, here), one)) << threads;
  std::filesystem::remove(path);
}

TEST(SessionsOfAPlan, AreCountedAndRight) {
  Model model = bind_model(network(), {});
  const Feeds feeds = model.feeds;
  ConstantStore store;
  CompileOptions options;
  options.plan.threads = 2;
  const Compiled compiled = compile(model, options, store);
  const std::vector<SessionsRow> rows = measure_sessions(compiled.plan, feeds, 3, 0.3);
  ASSERT_EQ(rows.size(), 3u);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i].sessions, int(i) + 1);
    EXPECT_GT(rows[i].runs_per_s, 0);
    EXPECT_GE(rows[i].latency.count(), 4 * (int(i) + 1));  // four rounds, each session at least one run
  }
  EXPECT_DOUBLE_EQ(rows[0].ratio, 1);
}

}  // namespace
}  // namespace ridgeline
