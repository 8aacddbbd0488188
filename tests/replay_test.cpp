// The decoder that `replay` measures: right by the reference with every kind of weights and with and without fusions,
// its caches written in place, its products counted.
#include <gtest/gtest.h>

#include "cli_command.h"
#include "plan/state.h"
#include "session/replay.h"
#include "session/session.h"
#include "verify/compare.h"
#include "verify/graph_tolerance.h"

namespace ridgeline {
namespace {

DecoderSpec small(DecoderWeights weights, DecoderFusions fusions, int64_t tokens = 1) {
  DecoderSpec spec;
  spec.size = {2, 128, 4, 512, 96, 24};
  spec.weights = weights;
  spec.fusions = std::move(fusions);
  spec.tokens = tokens;
  return spec;
}

Feeds feeds_of(const Plan& plan, DecoderNumbers& numbers, int64_t tokens, int64_t first) {
  Feeds feeds;
  for (const PlanTensor& t : plan.inputs) {
    if (t.dtype != DType::kI64) {
      feeds[t.name] = numbers.normal(t.name, t.dtype, t.shape);
      continue;
    }
    Tensor ints(DType::kI64, t.shape);
    for (int64_t i = 0; i < ints.elements(); ++i)
      ints.as<int64_t>()[i] = t.name == "input_ids" ? 3 + 7 * i : t.name == "lengths" ? first + tokens : first;
    feeds[t.name] = ints;
  }
  return feeds;
}

TEST(ReplayDecoder, EveryFormIsRightAndWritesItsCachesInPlace) {
  for (const DecoderWeights weights : {DecoderWeights::kF16, DecoderWeights::kI8, DecoderWeights::kI4}) {
    for (const DecoderFusions& fusions :
         {DecoderFusions{}, decoder_fusions(), DecoderFusions{"rotary"}, DecoderFusions{"qkv"}}) {
      for (const int64_t tokens : {1, 7}) {
        if (tokens > 1 && !fusions.count("rotary")) continue;
        DecoderNumbers numbers(5);
        Graph graph = decoder_graph(small(weights, fusions, tokens), numbers);
        PlanOptions options;
        options.threads = 1;
        options.views = !fusions.empty();
        ConstantStore store;
        const std::shared_ptr<const Plan> plan = plan_decoder(graph, options, store);
        const int64_t first = 9;
        const Feeds feeds = feeds_of(*plan, numbers, tokens, first);
        DecoderFusions apart = fusions;
        apart.erase("activation");  // an epilogue, which the reference of graphs does not take
        const Graph plain = decoder_graph(small(weights, apart, tokens), numbers);
        const std::vector<Tensor> right = run_reference_graph(plain, feeds, 1);

        const std::vector<StatePair> state = state_pairs(*plan);
        ASSERT_EQ(state.size(), 4U);
        std::vector<Tensor> keep;
        std::vector<const void*> in;
        std::vector<void*> out;
        for (const PlanTensor& t : plan->inputs) {
          keep.push_back(Tensor(t.dtype, t.shape));
          std::memcpy(keep.back().data(), feeds.at(t.name).data(), size_t(keep.back().bytes()));
          in.push_back(keep.back().data());
        }
        Tensor logits = Tensor::zeros(plan->outputs[0].dtype, plan->outputs[0].shape);
        out.resize(plan->outputs.size(), logits.data());
        for (const StatePair& p : state) out[size_t(p.output)] = keep[size_t(p.input)].data();
        Executor executor(plan);
        executor.run(in, out);
        executor.run(in, out);  // the same row again: nothing is added up
        // Activations in 8 bits: a level more or less of a row's largest number, 13 products deep.
        const double levels = weights == DecoderWeights::kF16 ? 0 : 0.02;
        EXPECT_LE(max_error(logits, right[0]), graph_tolerance(graph) + levels);
        for (const StatePair& p : state) {
          const Tensor &cache = keep[size_t(p.input)], &wanted = right[size_t(p.output)];
          EXPECT_LE(max_error(cache, wanted), graph_tolerance(graph) + levels);
          const Tensor& before = feeds.at(plan->inputs[size_t(p.input)].name);
          const int64_t depth = 32, capacity = 24;
          int changed = 0;
          for (int64_t i = 0; i < cache.elements(); ++i) {
            const int64_t row = i / depth % capacity;
            if (cache.f64(i) == before.f64(i)) continue;
            EXPECT_TRUE(row >= first && row < first + tokens) << row;
            ++changed;
          }
          EXPECT_GT(changed, 4 * depth * tokens * 3 / 4);
        }
        // As a pure function too: another buffer, the old one untouched.
        Runner runner(plan, feeds);
        runner.run();
        for (size_t o = 0; o < right.size(); ++o)
          EXPECT_LE(max_error(runner.outputs()[o], right[o]), graph_tolerance(graph) + levels);
      }
    }
  }
}

TEST(ReplayDecoder, FormsAgreeAndLosses) {
  const auto logits = [](DecoderWeights weights, const DecoderFusions& fusions) {
    DecoderNumbers numbers(5);
    Graph graph = decoder_graph(small(weights, fusions), numbers);
    ConstantStore store;
    PlanOptions options;
    options.threads = 1;
    const auto plan = plan_decoder(graph, options, store);
    Runner runner(plan, feeds_of(*plan, numbers, 1, 9));
    runner.run();
    return runner.outputs()[0];
  };
  const Tensor right = logits(DecoderWeights::kF16, {});
  for (const std::string& fusion : decoder_fusions())
    EXPECT_LT(max_error(logits(DecoderWeights::kF16, {fusion}), right), 1e-5) << fusion;
  const double i8 = max_error(logits(DecoderWeights::kI8, {}), right),
               i4 = max_error(logits(DecoderWeights::kI4, {}), right);
  EXPECT_GT(i8, 1e-4);
  EXPECT_LT(i8, 0.1);
  EXPECT_GT(i4, 2 * i8);
  EXPECT_LT(i4, 0.6);
}

TEST(ReplayDecoder, ProductsAreCounted) {
  DecoderSpec spec;
  spec.size = {12, 64, 2, 256, 32, 8};
  DecoderNumbers numbers(1);
  EXPECT_EQ(count_products(decoder_graph(spec, numbers)), 97);
  spec.fusions = {"qkv"};
  EXPECT_EQ(count_products(decoder_graph(spec, numbers)), 73);
}

TEST(ReplayDecoder, ForAGpuActivationsAndCachesAreF16) {
  DecoderSpec spec = small(DecoderWeights::kI4, decoder_fusions());
  spec.device = DeviceKind::kCuda;
  DecoderNumbers numbers(1);
  const Graph graph = decoder_graph(spec, numbers);
  for (NodeId id : graph.order())
    for (ValueId v : graph.node(id).outputs) {
      if (v != kNoValue) EXPECT_EQ(graph.value(v).dtype(), DType::kF16) << graph.node(id).name;
    }
}

TEST(ReplayDecoder, StagesBytesAndFloors) {
  ReplayOptions options;
  options.size = {2, 256, 4, 1024, 512, 32};
  options.weights = DecoderWeights::kI4;
  options.prompt = 8;
  options.threads = 1;
  options.seconds = 0.01;
  const Ceilings ceilings = unmeasured_ceilings(1);
  options.ceilings = &ceilings;
  const Replay all = replay_decoder(options);
  ASSERT_EQ(all.stages.size(), 5U);
  const char* const names[] = {"generic kernels", "M = 1 kernels", "int8 weights", "fusions", "int4 weights"};
  const int64_t weights = 2 * (4 * 256 * 256 + 2 * 256 * 1024), head = 512 * 256, cache = 2 * 2 * 4 * 32 * 64 * 4;
  for (size_t s = 0; s < 5; ++s) {
    const ReplayStage& stage = all.stages[s];
    EXPECT_EQ(stage.name, names[s]);
    EXPECT_EQ(stage.cache_bytes, cache);
    int64_t sum = 0;
    for (const LedgerEntry& e : stage.ledger) sum += e.bytes;
    EXPECT_EQ(sum, stage.bytes_moved);
    EXPECT_GT(stage.floor_ms, 0);
    EXPECT_GE(stage.samples.count(), 11);
  }
  EXPECT_EQ(all.stages[0].layer_bytes, 2 * weights);
  EXPECT_EQ(all.stages[0].head_bytes, 2 * head);
  EXPECT_EQ(all.stages[2].layer_bytes, weights + 2 * 4 * (4 * 256 + 1024 + 256));  // with a scale a row
  EXPECT_EQ(all.stages[4].layer_bytes, weights / 2 + weights / 128 * 2);
  EXPECT_LT(all.stages[3].launches, all.stages[2].launches - 2 * 8);
  EXPECT_EQ(all.prefill.products_a_layer, 8);
  EXPECT_EQ(all.prefill.tokens, 8);

  options.without = {"fusions", "i8"};
  const Replay fewer = replay_decoder(options);
  ASSERT_EQ(fewer.stages.size(), 3U);
  EXPECT_EQ(fewer.stages[2].name, "int4 weights");
  EXPECT_EQ(fewer.stages[2].launches, fewer.stages[0].launches);
  options.without = {"rotary"};
  const Replay rest = replay_decoder(options);
  EXPECT_EQ(rest.stages[3].fusions.count("rotary"), 0U);
  EXPECT_GT(rest.stages[3].launches, all.stages[3].launches);
}

}  // namespace
}  // namespace ridgeline
