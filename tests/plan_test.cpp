// Plans: memory that never overlaps, runs that never allocate, weights packed once, shapes bound late.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <map>
#include <new>
#include <thread>

#include "kernels/cpu/matmul/micro.h"
#include "kernels/cpu/simd.h"
#include "plan/memory.h"
#include "plan/views.h"
#include "session/session.h"
#include "verify/compare.h"

// Every allocation of this program is counted; api_test.cpp looks at it, too. The nothrow form (std::stable_sort takes
// its buffer by it) must come from the same malloc as the rest, or the address sanitizer sees new meet free.
std::atomic<int64_t> allocations{0};
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes ? bytes : 1);
}
void* operator new(size_t bytes) {
  if (void* p = operator new(bytes, std::nothrow)) return p;
  throw std::bad_alloc();
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace ridgeline {
namespace {

Tensor noise(Extents shape, float scale = 0.3f) {
  Tensor t(DType::kF32, std::move(shape));
  for (int64_t i = 0; i < t.elements(); ++i) t.as<float>()[i] = scale * float((i * 7919 + 13) % 101 - 50) / 50;
  return t;
}

// A residual block and a head, with a symbolic batch.
Graph network(int64_t c = 8) {
  Graph g;
  g.name = "network";
  Attributes pads;
  pads.set("pads", std::vector<int64_t>{1, 1, 1, 1});
  const ValueId x = g.add_input("x", DType::kF32, Shape{Dim::symbol("N"), c, 10, 10});
  const ValueId a =
      g.node(g.add_node(*find_op("Conv"),
                        {x, g.add_constant("w1", noise({c, c, 3, 3})), g.add_constant("b1", noise({c}))}, pads))
          .output();
  const ValueId r = g.node(g.add_node(*find_op("Relu"), {a})).output();
  const ValueId b = g.node(g.add_node(*find_op("Conv"), {r, g.add_constant("w2", noise({c, c, 3, 3}))}, pads)).output();
  const ValueId s = g.node(g.add_node(*find_op("Add"), {b, x})).output();
  const ValueId p = g.node(g.add_node(*find_op("GlobalAveragePool"), {s})).output();
  const ValueId f = g.node(g.add_node(*find_op("Flatten"), {p})).output();
  const ValueId y =
      g.node(g.add_node(*find_op("MatMul"), {f, g.add_constant("w3", noise({c, 5}))}, {}, 1, {"y"})).output();
  g.mark_output(y);
  return g;
}

TEST(Plan, RunsWithoutAllocating) {
  Model model = bind_model(network(), {});
  ConstantStore store;
  CompileOptions options;
  options.plan.threads = 1;
  const Compiled compiled = compile(model, options, store);
  Runner runner(compiled.plan, model.feeds);
  runner.run();
  const int64_t before = allocations;
  for (int i = 0; i < 10; ++i) runner.run();
  EXPECT_EQ(allocations - before, 0);
}

TEST(Plan, LiveSlotsNeverOverlapAndNothingUnwrittenIsRead) {
  for (int stage = 0; stage < kStageCount; ++stage) {
    Model model = bind_model(network(), {});
    ConstantStore store;
    CompileOptions options;
    options.plan.threads = 1;
    options.pipeline.stage = Stage(stage);
    const Compiled compiled = compile(model, options, store);
    EXPECT_TRUE(check_plan(*compiled.plan).empty()) << check_plan(*compiled.plan).front();
    Runner runner(compiled.plan, model.feeds);
    runner.run();
    const Tensor first = runner.outputs()[0].clone();
    runner.executor().poison();
    runner.run();
    EXPECT_EQ(max_error(runner.outputs()[0], first), 0) << "stage " << stage;
    const std::vector<Tensor> right = run_reference_graph(model.graph, model.feeds, 1);
    EXPECT_LT(max_error(first, right[0]), 1e-5) << "stage " << stage;
  }
}

TEST(Plan, OverlapsAreFound) {
  Plan plan;
  plan.arena_bytes = 256;
  plan.slots = {{0, 128, 0, 2}, {64, 128, 1, 3}};
  EXPECT_EQ(check_plan(plan).size(), 1u);
  plan.slots[1].first_step = 3;
  EXPECT_TRUE(check_plan(plan).empty());
  EXPECT_NO_THROW(require_sound(plan));
  plan.slots[1].bytes = 1024;
  EXPECT_EQ(check_plan(plan).size(), 1u);
  EXPECT_THROW(require_sound(plan), std::logic_error);
  // Many slots, few of them at fault.
  plan.slots.clear();
  plan.arena_bytes = 64 * 300;
  for (int64_t i = 0; i < 300; ++i) plan.slots.push_back({64 * ((i * 7) % 300), 64, 0, 9});
  EXPECT_TRUE(check_plan(plan).empty());
  plan.slots[200].bytes = 128;
  EXPECT_EQ(check_plan(plan).size(), 1u);
}

TEST(Plan, MemoryIsReusedAndPlacedTightly) {
  std::vector<Slot> chain;
  for (int i = 0; i < 10; ++i) chain.push_back({0, 1024, i, i + 1});
  EXPECT_EQ(place_slots(chain), 2048);  // two live at a time
  std::vector<Slot> none;
  EXPECT_EQ(place_slots(none), 0);
}

TEST(Plan, AnotherBatchPacksNothingNew) {
  Model model = bind_model(network(), {});
  ConstantStore store;
  CompileOptions options;
  options.plan.threads = 1;
  Compiled compiled = compile(model, options, store);
  const int64_t bytes = store.bytes();
  PlanOptions plan = plan_options_for(options.pipeline, options.plan);
  plan.bindings = {{"N", 4}};
  plan.keep_packings = true;
  const auto larger = std::make_shared<const Plan>(make_plan(compiled.graph, plan, store));
  EXPECT_EQ(larger->inputs[0].shape, (Extents{4, 8, 10, 10}));
  EXPECT_EQ(larger->outputs[0].shape, (Extents{4, 5}));
  const Feeds feeds = {{"x", noise({4, 8, 10, 10}, 1)}};
  Runner runner(larger, feeds);
  runner.run();
  const std::vector<Tensor> right = run_reference_graph(model.graph, feeds, 1);
  EXPECT_LT(max_error(runner.outputs()[0], right[0]), 1e-5);
  // A kernel that stands packed is preferred: the larger batch shares every weight.
  EXPECT_EQ(store.bytes(), bytes);
}

// Of each weight one copy is left: the packed one where a kernel packs, else the one from the file.
TEST(Plan, WeightsAreReleasedOncePacked) {
  Graph g = network(32);  // 36 KiB a convolution: small constants are kept
  std::map<std::string, std::weak_ptr<void>> weights;
  for (const char* name : {"w1", "w2"}) weights[name] = g.value(g.find_value(name)).info.constant.memory();
  Model model = bind_model(std::move(g), {});
  ConstantStore store;
  CompileOptions options;
  options.plan.threads = 1;
  options.consume = true;
  const Compiled compiled = compile(model, options, store);
  Runner runner(compiled.plan, model.feeds);
  runner.run();
  for (const Step& step : compiled.plan->steps) {
    const KernelCall& call = step.call;
    if (call.problem.op->name != "Conv") continue;
    ASSERT_TRUE(call.kernel->packing) << call.kernel->name;
    EXPECT_FALSE(call.kernel->packing(call.problem, call.tile, 1).key.empty()) << call.kernel->name;
  }
  for (const auto& [name, memory] : weights) EXPECT_TRUE(memory.expired()) << name;
}

TEST(Plan, AKernelThatIsAskedForGetsTheLayoutThatItWants) {
  Model model = bind_model(network(), {});
  const std::vector<Tensor> right = run_reference_graph(model.graph, model.feeds, 1);
  const std::string conv = model.graph.node(model.graph.order()[0]).name;
  ConstantStore store;
  CompileOptions options;
  options.plan.threads = 1;
  for (const char* kernel : {"cpu.conv_nhwc", "cpu.conv_nchw", "cpu.reference"}) {
    options.plan.forced = {{conv, kernel}};
    const Compiled compiled = compile(model, options, store);
    EXPECT_NE(compiled.plan->text().find(fmt::format("kernel {} '{}'", kernel, conv)), std::string::npos) << kernel;
    Runner runner(compiled.plan, model.feeds);
    runner.run();
    EXPECT_LT(max_error(runner.outputs()[0], right[0]), 1e-5) << kernel;
  }
  for (const char* kernel : {"cpu.conv_depthwise_nchw", "cpu.conv_winograd", "cpu.nonsense"}) {
    options.plan.forced = {{conv, kernel}};
    EXPECT_THROW(compile(model, options, store), Error) << kernel;
  }
}

// Images between convolutions of many channels lie channels last; one whose only reader wants rows of it planar does
// not, since the copy would cost more than the kernel gains. The sum is above a uniform choice's by at most the gain
// that is asked of a change: all planar has to be 3 % better than all channels last to be the start.
TEST(Plan, LayoutsAreChosenForTheWholeGraph) {
  const auto summary = [](int convolutions, bool flat) {
    Graph g;
    ValueId v = g.add_input("x", DType::kF32, Shape{1, 64, 28, 28});
    for (int i = 0; i < convolutions; ++i)
      v = g.node(g.add_node(*find_op("Conv"), {v, g.add_constant(fmt::format("w{}", i), noise({64, 64, 1, 1}))}))
              .output();
    Tensor shape(DType::kI64, {2});
    shape.as<int64_t>()[0] = 64, shape.as<int64_t>()[1] = 784;
    if (flat)
      v = g.node(g.add_node(*find_op("Softmax"),
                            {g.node(g.add_node(*find_op("Reshape"), {v, g.add_constant("shape", shape)})).output()}))
              .output();
    else
      v = g.node(g.add_node(*find_op("GlobalAveragePool"), {v})).output();
    g.mark_output(v);
    Model model = bind_model(std::move(g), {});
    const std::vector<Tensor> right = run_reference_graph(model.graph, model.feeds, 1);
    ConstantStore store;
    CompileOptions options;
    options.plan.threads = 1;
    const Ceilings neutral = unmeasured_ceilings(1);
    options.plan.ceilings = &neutral;
    const Compiled compiled = compile(model, options, store);
    Runner runner(compiled.plan, model.feeds);
    runner.run();
    EXPECT_LT(max_error(runner.outputs()[0], right[0]), 1e-5);
    const LayoutSummary s = compiled.plan->layouts;
    EXPECT_LE(s.chosen_ns, std::min(s.all_last_ns, s.all_planar_ns) * 1.03);
    return s;
  };
  const LayoutSummary chain = summary(6, false), head = summary(1, true);
  EXPECT_EQ(chain.images, 6);
  EXPECT_GE(chain.last, 5);
  EXPECT_EQ(head.images, 1);
  EXPECT_EQ(head.last, 0);
}

TEST(Plan, TwoPlansRunInTwoThreads) {
  Model model = bind_model(network(), {});
  ConstantStore store;
  CompileOptions options;
  options.plan.threads = 2;
  const Compiled compiled = compile(model, options, store);
  Runner first(compiled.plan, model.feeds), second(compiled.plan, model.feeds);
  first.run();
  const Tensor right = first.outputs()[0].clone();
  std::thread a([&] {
    for (int i = 0; i < 50; ++i) first.run();
  });
  std::thread b([&] {
    for (int i = 0; i < 50; ++i) second.run();
  });
  a.join();
  b.join();
  EXPECT_EQ(max_error(first.outputs()[0], right), 0);
  EXPECT_EQ(max_error(second.outputs()[0], right), 0);
}

// Whatever a plan decides stands in its text. The machine is described, so that every machine plans alike; the scalar
// baseline has one lane or four, as the compiler has it (GCC 12.2: one, 13: four), and panels are two lanes wide.
TEST(Plan, TextIsTheGoldenOne) {
  Ceilings ceilings = unmeasured_ceilings();
  ceilings.cores = 1;
  ceilings.caches = {32 << 10, 1 << 20, 32 << 20};
  cpu::limit_isa("scalar");
  Model model = bind_model(network(), {});
  ConstantStore store;
  CompileOptions options;
  options.plan.threads = 1;
  options.plan.ceilings = &ceilings;
  std::string text = "-- as imported\n";
  options.pipeline.none = true;
  text += compile(model, options, store).plan->text();
  options.pipeline.none = false;
  text += "-- whole graph\n" + compile(model, options, store).plan->text();
  const int lanes = cpu::micro_kernels().lanes;
  cpu::limit_isa("native");
  cpu::limit_isa_from_environment();
  const std::string path = fmt::format("{}/tests/golden/plan_{}_lanes.txt", RIDGELINE_SOURCE_DIR, lanes);
  std::ifstream file(path);
  const std::string golden{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(text, golden) << "if the change is meant, " << path << " becomes:\n" << text;
}

// Slices are views: the step, its direction and the start are strides and an offset.
TEST(Views, SlicesKeepTheirStep) {
  constexpr int64_t kSlices[][3] = {{1, 11, 3}, {0, 12, 2}, {10, -13, -2}, {2, 5, 1}};
  for (const auto& [start, end, step] : kSlices) {
    Graph g;
    const ValueId x = g.add_input("x", DType::kF32, Shape{2, 12, 3});
    auto list = [&](const char* name, int64_t value) {
      return g.add_constant(name, Tensor::from<int64_t>({1}, {value}));
    };
    const ValueId part = g.node(g.add_node(*find_op("Slice"), {x, list("starts", start), list("ends", end),
                                                               list("axes", 1), list("steps", step)}))
                             .output();
    g.mark_output(g.node(g.add_node(*find_op("Relu"), {part}, {}, 1, {"y"})).output());
    Model model = bind_model(std::move(g), {});
    ConstantStore store;
    CompileOptions options;
    options.plan.threads = 1;
    const Compiled compiled = compile(model, options, store);
    Runner runner(compiled.plan, model.feeds);
    runner.run();
    EXPECT_EQ(max_error(runner.outputs()[0], run_reference_graph(model.graph, model.feeds, 1)[0]), 0)
        << start << ":" << end << ":" << step << "\n"
        << compiled.plan->text();
    if (step > 0) EXPECT_EQ(compiled.plan->steps.size(), 1u) << compiled.plan->text();  // the slice is no step
  }
}

TEST(Views, ReshapesThatNeedNoCopy) {
  EXPECT_TRUE(reshape_layout(Layout({2, 3, 4}), {6, 4}));
  const Layout transposed({4, 3}, {1, 4});
  EXPECT_FALSE(reshape_layout(transposed, {12}));
  EXPECT_TRUE(reshape_layout(transposed, {2, 2, 3}));
  EXPECT_TRUE(reshape_layout(Layout::channels_last({1, 16, 1, 1}), {1, 16}));
  const auto split = reshape_layout(Layout({2, 8}, {32, 1}), {2, 4, 2});
  ASSERT_TRUE(split);
  EXPECT_EQ(split->strides, (Extents{32, 2, 1}));
}

TEST(Errors, ShapesThatDoNotFitAreNamed) {
  Model model = bind_model(network(), {});
  LoadOptions wrong;
  wrong.inputs["x"] = noise({1, 7, 10, 10});
  try {
    bind_model(network(), wrong);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("'x'"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("[1,7,10,10]"), std::string::npos);
  }
  LoadOptions unknown;
  unknown.dims["Q"] = 3;
  EXPECT_THROW(bind_model(network(), unknown), Error);
}

}  // namespace
}  // namespace ridgeline
