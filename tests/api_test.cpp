// The public API: operators called and planned, models loaded, planned and run; no allocation in run; contexts in two
// threads.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

#include "ridgeline/extend.h"
#include "ridgeline/ridgeline.h"

extern std::atomic<int64_t> allocations;  // of this program: counted in plan_test.cpp

namespace ridgeline {
namespace {

Tensor ramp(Extents shape) {
  Tensor t(DType::kF32, std::move(shape));
  for (int64_t i = 0; i < t.elements(); ++i) t.as<float>()[i] = float(i % 7) - 2.5f;
  return t;
}

TEST(Ops, MatmulTransposes) {
  const Tensor a = Tensor::from<float>({2, 3}, {1, 2, 3, 4, 5, 6}), b = Tensor::from<float>({2, 3}, {1, 0, 1, 0, 1, 0});
  const Tensor y = ops::matmul(a, b, {.trans_b = true});
  EXPECT_EQ(y.shape(), (Extents{2, 2}));
  EXPECT_EQ(y.to_f64(), (std::vector<double>{4, 2, 10, 5}));
}

TEST(Ops, IntegersTakeThePlainOperator) {
  const Tensor a = Tensor::from<int32_t>({1, 2}, {3, 4}), b = Tensor::from<int32_t>({2, 1}, {5, 6});
  EXPECT_EQ(ops::matmul(a, b).to_i64(), (std::vector<int64_t>{39}));
}

TEST(Ops, OptionsAndSeveralResults) {
  const Tensor x = Tensor::from<float>({2, 3}, {3, 1, 2, 6, 5, 4});
  const auto [values, indices] = ops::top_k(x, Tensor::from<int64_t>({1}, {2}));
  EXPECT_EQ(values.to_f64(), (std::vector<double>{3, 2, 6, 5}));
  EXPECT_EQ(indices.to_i64(), (std::vector<int64_t>{0, 2, 0, 1}));
  EXPECT_EQ(ops::reduce_sum(x, {.axes = Tensor::from<int64_t>({1}, {1}), .keepdims = 0}).to_f64(),
            (std::vector<double>{6, 15}));
  EXPECT_EQ(ops::concat({x, x}, {.axis = 0}).shape(), (Extents{4, 3}));
  EXPECT_EQ(ops::cast(x, {.to = DType::kI64}).dtype(), DType::kI64);
  EXPECT_EQ(ops::clip(x, {.max = Tensor::scalar<float>(2)}).to_f64(), (std::vector<double>{2, 1, 2, 2, 2, 2}));
}

TEST(Ops, ShapesMayDependOnContents) {
  const Tensor x = ramp({2, 6});
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(ops::reshape(x, Tensor::from<int64_t>({2}, {3, -1})).shape(), (Extents{3, 4}));
    EXPECT_EQ(ops::reshape(x, Tensor::from<int64_t>({2}, {-1, 2})).shape(), (Extents{6, 2}));
  }
}

TEST(Ops, CallsArePlannedOnceAndTheCacheIsBounded) {
  Context context({.threads = 1, .planned_calls = 4});
  const Tensor x = ramp({3, 5});
  for (int i = 0; i < 3; ++i) ops::relu(x, context);
  EXPECT_EQ(context.planned_calls(), 1u);
  EXPECT_EQ(context.cache_hits(), 2u);
  for (int64_t n = 1; n < 10; ++n) ops::relu(ramp({n}), context);
  EXPECT_EQ(context.planned_calls(), 4u);
}

TEST(Op, RunsOnTheCallersBuffersInTheLayoutsAsked) {
  const Tensor w = ramp({4, 2, 3, 3}), x = ramp({1, 2, 5, 5});
  const Tensor want = ops::conv(x, w, {.pads = {1, 1, 1, 1}});
  OpOptions options;
  options.layouts = {Layout::channels_last(want.shape())};
  Op conv("Conv", {{DType::kF32, Layout::channels_last(x.shape())}, OpInput::constant_of(w)}, {{"pads", {1, 1, 1, 1}}},
          options);
  Tensor in(DType::kF32, x.shape()), out(DType::kF32, want.shape()), got(DType::kF32, want.shape());
  copy_elements(x.view(), {in.data(), DType::kF32, Layout::channels_last(x.shape())});
  conv.run({in.data()}, {out.data()});
  copy_elements({out.data(), DType::kF32, conv.output_layout()}, got.view());
  for (int64_t i = 0; i < want.elements(); ++i) EXPECT_NEAR(got.f64(i), want.f64(i), 1e-4);
}

TEST(Op, RunAllocatesNothing) {
  Op add("Add", {{DType::kF32, Extents{64, 33}}, {DType::kF32, Extents{33}}});
  Op product("MatMul", {{DType::kF32, Extents{24, 48}}, OpInput::constant_of(ramp({48, 40}))});
  const Tensor a = ramp({64, 33}), b = ramp({33}), c = ramp({24, 48});
  Tensor y(DType::kF32, {64, 33}), z(DType::kF32, {24, 40});
  const int64_t before = allocations;
  add.run({a.data(), b.data()}, {y.data()});
  product.run({c.data()}, {z.data()});
  EXPECT_EQ(allocations, before);
}

TEST(Op, TellsCandidatesProblemAndCost) {
  Op op("MatMul", {{DType::kF32, Extents{8, 16}}, {DType::kF32, Extents{16, 4}}});
  EXPECT_EQ(op.cost().flops, 2 * 8 * 16 * 4);
  EXPECT_EQ(op.problem().substr(0, 7), "MatMul ");
  EXPECT_GE(op.candidates().size(), 3u);
  OpOptions options;
  options.kernel = "cpu.reference";
  EXPECT_EQ(Op("MatMul", {{DType::kF32, Extents{8, 16}}, {DType::kF32, Extents{16, 4}}}, {}, options).kernel(),
            "cpu.reference");
}

TEST(Op, ErrorsNameWhatWasAllowed) {
  auto message = [](const std::function<void()>& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(message([] { Op("Matmul", {}); }).find("no operator 'Matmul'"), std::string::npos);
  EXPECT_NE(message([] {
              Op("Softmax", {{DType::kF32, Extents{3}}}, {{"axes", 1}});
            }).find("it has: axis"),
            std::string::npos);
  EXPECT_NE(message([] { ops::matmul(ramp({2, 3}), ramp({2, 3})); }).find("[2,3]"), std::string::npos);
  EXPECT_NE(message([] {
              Op("Relu", {{DType::kF32, Extents{3}}})({ramp({4})});
            }).find("planned as f32[3]"),
            std::string::npos);
}

// Another domain's operator with a name of the standard's, and another meaning.
constinit const OpSchema kDoubled = {
    .name = "Softmax",
    .domain = "test",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc = "2 x",
    .inputs = {{"input", kFloats}},
    .outputs = {{"output"}},
    .attributes = {{"axis", -1}},
    .infer = [](Infer& i) { i.same_as(0, 0); },
    .reference =
        [](Reference& r) {
          for (int64_t k = 0; k < r.out[0].elements(); ++k) r.out[0].f[size_t(k)] = 2 * r.in[0].f[size_t(k)];
        },
    .samples = {"input=f32[3]"},
};

TEST(Extend, ANamesakeOfAnotherDomainRunsOnItsOwnReference) {
  register_op(kDoubled);
  Problem problem;
  problem.op = &kDoubled;
  problem.inputs = problem.outputs = {{DType::kF32, Layout({3})}};
  problem.op_inputs = 1;
  const Choice choice = choose_kernel(problem, unmeasured_ceilings());
  EXPECT_EQ(choice.winner().kernel->name, "cpu.reference");
  const Tensor x = ramp({3}), y = ramp({3});
  void *in = x.data(), *out = y.data();
  choice.winner().kernel->run(bind_kernel(problem, choice.winner()), {&in, &out}, ThreadPool(1));
  EXPECT_EQ(y.f64(0), 2 * x.f64(0));
  problem.op = find_op("Softmax");
  EXPECT_EQ(choose_kernel(problem, unmeasured_ceilings()).winner().kernel->name, "cpu.softmax");
}

TEST(Context, TwoContextsRunInTwoThreads) {
  const Tensor a = ramp({33, 65}), b = ramp({65, 17});
  const Tensor want = ops::matmul(a, b);
  std::atomic<int> wrong{0};
  auto work = [&] {
    Context context({.threads = 2});
    for (int i = 0; i < 50; ++i) {
      const Tensor y = ops::matmul(a, b, {}, context);
      for (int64_t k = 0; k < y.elements(); ++k) wrong += y.f64(k) != want.f64(k);
    }
  };
  std::thread first(work), second(work);
  first.join();
  second.join();
  EXPECT_EQ(wrong, 0);
}

class ApiModel : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Each test is a process, and they run at once.
    path_ = fmt::format("{}api_mlp_{}.onnx", testing::TempDir(), getpid());
    const std::string command = std::string(RIDGELINE_CLI) + " make mlp --quiet -o " + path_;
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  static void TearDownTestSuite() {
    for (const std::string& file : {path_, path_ + "_saved.onnx"}) std::remove(file.c_str());
  }
  static inline std::string path_;
};

TEST_F(ApiModel, LoadsOptimizesPlansAndRuns) {
  const LoadedModel model = LoadedModel::load(path_);
  EXPECT_GT(model.parameters(), 0);
  const OptimizedModel optimized = optimize(model);
  const PlannedModel planned = plan(optimized);
  EXPECT_FALSE(planned.steps().empty());
  ridgeline::Run run(planned);
  const auto outputs = run(model.feeds());
  const std::vector<Tensor> want = model.reference();
  size_t i = 0;
  for (const TensorInfo& info : planned.outputs()) {
    const Tensor& got = outputs.at(info.name);
    ASSERT_EQ(got.shape(), want[i].shape());
    for (int64_t k = 0; k < got.elements(); ++k) EXPECT_NEAR(got.f64(k), want[i].f64(k), 1e-3);
    ++i;
  }
}

TEST_F(ApiModel, RunAllocatesNothingAndPlansAreKept) {
  const LoadedModel model = LoadedModel::load(path_);
  const OptimizedModel optimized = optimize(model);
  const PlannedModel planned = plan(optimized);
  EXPECT_EQ(&planned.state(), &plan(optimized).state());
  ridgeline::Run run(planned);
  std::vector<const void*> in;
  std::vector<Tensor> results;
  std::vector<void*> out;
  for (const TensorInfo& info : planned.inputs()) in.push_back(model.feeds().at(info.name).data());
  for (const TensorInfo& info : planned.outputs()) {
    results.emplace_back(info.dtype, info.shape);
    out.push_back(results.back().data());
  }
  run(in, out);
  const int64_t before = allocations;
  run(in, out);
  EXPECT_EQ(allocations, before);
}

TEST_F(ApiModel, SavedModelGivesTheSameOutputs) {
  const LoadedModel model = LoadedModel::load(path_);
  const std::string saved = path_ + "_saved.onnx";
  optimize(model).save(saved);
  const LoadedModel again = LoadedModel::load(saved, {.inputs = model.feeds()});
  const std::vector<Tensor> want = model.reference(), got = again.reference();
  ASSERT_EQ(got.size(), want.size());
  for (int64_t k = 0; k < want[0].elements(); ++k) EXPECT_NEAR(got[0].f64(k), want[0].f64(k), 1e-3);
}

TEST_F(ApiModel, UnknownDimensionsAndInputsAreRefused) {
  EXPECT_THROW(LoadedModel::load(path_, {.dims = {{"nonsense", 3}}}), Error);
  const OptimizedModel optimized = optimize(LoadedModel::load(path_));
  EXPECT_THROW(plan(optimized, {.dims = {{"nonsense", 3}}}), Error);
  ridgeline::Run run(plan(optimized));
  const std::map<std::string, Tensor> none;
  EXPECT_THROW(run(none), Error);
}

}  // namespace
}  // namespace ridgeline
