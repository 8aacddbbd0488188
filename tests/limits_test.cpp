// What a file or a user may ask for at the most: sizes are checked before they are computed with, counters saturate,
// chains stay cheap.
#include <sys/stat.h>

#include <algorithm>
#include <limits>

#include "core/saturate.h"
#include "core/words.h"
#include "formats/make/make.h"
#include "formats/npy.h"
#include "ir/reference.h"
#include "onnx_model.h"
#include "session/inspect.h"
#include "session/load.h"
#include "session/problem_words.h"
#include "tune/bench.h"
#include "verify/check.h"
#include "verify/reference_run.h"
#include "verify/suite.h"

namespace ridgeline {
namespace {

using LimitsTest = OnnxTest;
constexpr int64_t k62 = int64_t(1) << 62;

/// The message of the Error that `body` throws; every string has to occur in it.
template <typename Body>
void refuses(const Body& body, const std::vector<std::string>& mentions) {
  try {
    body();
  } catch (const Error& error) {
    for (const std::string& each : mentions)
      EXPECT_NE(std::string(error.what()).find(each), std::string::npos) << error.what();
    return;
  }
  ADD_FAILURE() << "accepted; wanted a refusal with " << fmt::format("{}", fmt::join(mentions, ", "));
}

TEST(Limits, SizesNeverWrap) {
  constexpr int64_t kMost = int64_t(1) << 46;
  EXPECT_EQ(bytes_of(DType::kF64, element_count(Extents{kMost})), 8 * kMost);
  refuses([] { element_count(Extents{kMost + 1}); }, {"[70368744177665]", "2^46"});
  refuses([] { element_count(Extents{k62}); }, {"[4611686018427387904]", "2^46"});
  refuses([] { element_count(Extents{int64_t(1) << 31, int64_t(1) << 31}); }, {"[2147483648,2147483648]"});
  refuses([] { element_count(Extents{k62, 0, k62}); }, {"too many"});  // its strides would wrap
  refuses([] { element_count(Extents{-1, 0}); }, {"negative"});
  EXPECT_EQ(element_count(Extents{3, 0, 5}), 0);
  refuses([] { (void)Layout({2, 3}, {k62, 1}).span(); }, {"2^46"});
  refuses([] { (void)Layout({8, 8}, {kMost / 8, kMost / 8}).span(); }, {"2^46"});
}

TEST(Limits, CountersSaturate) {
  EXPECT_EQ(saturated_product({2, 3, 4}), 24);
  EXPECT_EQ(saturated_product({k62, k62}), kMostCounted);
  EXPECT_EQ(saturated_product({k62, k62, 0}), 0);
  EXPECT_EQ(saturated_sum(kMostCounted, kMostCounted), kMostCounted);
  const Cost cost = cost_of(parse_bench_problem("matmul", {"m=8388608", "n=8388608", "k=8388608"}, 1).problem);
  EXPECT_EQ(cost.flops, kMostCounted);
  EXPECT_EQ(cost.bytes(), 12 * (int64_t(1) << 46));
  refuses(
      [] {
        parse_bench_problem("matmul", {"m=2147483648", "n=2147483648", "k=2147483648"}, 1);
      },
      {"[2147483648,2147483648]", "2^46"});
  refuses([] { parse_bench_problem("relu", {"shape=2147483648x2147483648"}, 1); }, {"[2147483648,2147483648]"});
  refuses([] { check_line("Relu x=f32[2147483648,2147483648]"); }, {"[2147483648,2147483648]"});
}

TEST_F(LimitsTest, SizesOfFiles) {
  input("x", {"4611686018427387904"});
  node("Relu", {"x"}, {"y"});
  output("y");
  refused(ErrorCode::kBadModel, {"input 'x'", "[4611686018427387904]", "2^46"});
  graph().mutable_input()->Clear();
  input("x", {"N"});
  refuses([&] { bind_model(import(), {.dims = {{"N", k62}}}); }, {"'x'", "[4611686018427387904]", "2^46"});
  graph().mutable_input()->Clear();
  write("w.bin", std::string(1000, 'w'));
  auto& w = weight("x", {k62});
  w.set_data_location(onnx::TensorProto::EXTERNAL);
  auto& entry = *w.add_external_data();
  entry.set_key("location");
  entry.set_value("w.bin");
  refused(ErrorCode::kBadModel, {"tensor 'x'", "[4611686018427387904]", "2^46"});
  w.clear_external_data();
  w.clear_data_location();
  refused(ErrorCode::kBadModel, {"tensor 'x'", "2^46"});
}

TEST_F(LimitsTest, SizesThatNodesMake) {
  input("x", {"2147483648", "1"}, 3);
  input("z", {"1", "2147483648"}, 3);
  node("Add", {"x", "z"}, {"y"}, "sum");
  output("y");
  refused(ErrorCode::kBadModel, {"node 'sum'", "[2147483648,2147483648]"});
}

/// Passes and plan of the model at hand, its inputs not made.
void plan(const Graph& graph) {
  LoadOptions load;
  load.make_inputs = false;
  Model model = bind_model(graph, load);
  ConstantStore store;
  compile(model, {}, store);
}

TEST_F(LimitsTest, WhatNodesMakeOfConstantsIsNotFoldedWithoutBound) {
  struct Bomb {
    const char* op;
    std::vector<int64_t> operand;
  };
  for (const Bomb& bomb : {Bomb{"ConstantOfShape", {int64_t(1) << 40}}, Bomb{"Expand", {int64_t(1) << 40}},
                           Bomb{"Tile", {int64_t(1) << 40}}, Bomb{"Pad", {0, int64_t(1) << 40}}}) {
    model_.clear_graph();
    input("x", {"1"});
    raw_weight("one", {1});
    weight("n", {int64_t(bomb.operand.size())}, 7)
        .set_raw_data(bomb.operand.data(), bomb.operand.size() * sizeof(int64_t));
    const bool alone = std::string(bomb.op) == "ConstantOfShape";
    node(bomb.op, alone ? std::vector<std::string>{"n"} : std::vector<std::string>{"one", "n"}, {"a"}, "bomb");
    node("Mul", {"a", "x"}, {"y"}, "user");
    output("y");
    refuses([&] { plan(import()); }, {"node '", "out of memory"});
  }
}

TEST_F(LimitsTest, ConstantsThatDoubleFortyTimes) {
  input("x", {"1"});
  raw_weight("c0", {1, 2, 3, 4});
  for (int i = 0; i < 40; ++i) {
    const std::string from = "c" + std::to_string(i);
    set(node("Concat", {from, from}, {"c" + std::to_string(i + 1)}, "bomb" + std::to_string(i)), "axis", int64_t(0));
  }
  set(node("ReduceSum", {"c40"}, {"s"}), "keepdims", int64_t(0));
  node("Add", {"s", "x"}, {"y"});
  output("y");
  refuses([&] { plan(import()); }, {"node 'bomb", "Concat", "out of memory"});
}

TEST_F(LimitsTest, ProductsOfConstantsAreLeftToTheRun) {
  input("x", {"1"});
  const int64_t size[] = {1000, 1000};
  weight("n", {2}, 7).set_raw_data(size, sizeof(size));
  node("ConstantOfShape", {"n"}, {"a"});
  node("MatMul", {"a", "a"}, {"b"}, "product");  // 2 GFLOP
  node("Add", {"b", "x"}, {"y"});
  output("y");
  Graph g = import();
  Decisions decisions;
  run_passes(g, PipelineOptions{}, decisions);
  const auto said = std::find_if(decisions.all.begin(), decisions.all.end(), [](const Decision& d) {
    return d.pass == "fold_constants" && d.action == Action::kRefused && d.nodes == std::vector<std::string>{"product"};
  });
  ASSERT_NE(said, decisions.all.end());
  EXPECT_NE(said->reason.find("too long"), std::string::npos) << said->reason;
}

TEST_F(LimitsTest, ScalesBeyondWhatAShapeMayHave) {
  input("x", {"1", "1", "4", "4"});
  const float scales[] = {1, 1, std::numeric_limits<float>::infinity(), 1e30F};
  weight("s", {4}).set_raw_data(scales, sizeof(scales));
  node("Resize", {"x", "", "s"}, {"y"}, "grow");
  output("y");
  refused(ErrorCode::kBadModel, {"node 'grow'", "Resize", "too many elements"});
  graph().mutable_node(0)->set_op_type("Range");
  const float ends[] = {0, 1, 1e-40F};
  for (int i = 0; i < 3; ++i) weight("r" + std::to_string(i), {}).set_raw_data(&ends[i], sizeof(float));
  graph().mutable_node(0)->clear_input();
  for (const char* each : {"r0", "r1", "r2"}) graph().mutable_node(0)->add_input(each);
  refused(ErrorCode::kBadModel, {"node 'grow'", "Range", "too many elements"});
}

TEST_F(LimitsTest, SplitIntoABillionParts) {
  opset(18);
  input("x", {"4"});
  set(node("Split", {"x"}, {"y"}, "cut"), "num_outputs", int64_t(1'000'000'000));
  output("y");
  refused(ErrorCode::kBadModel, {"node 'cut'", "1000000000", "1 outputs"});
}

TEST_F(LimitsTest, AStepStandsForSoManyNodesAtTheMost) {
  input("x", {"2", "3"});
  constexpr int kNodes = 600;
  for (int i = 0; i < kNodes; ++i) {
    auto& n = node("Transpose", {i ? "t" + std::to_string(i) : "x"}, {"t" + std::to_string(i + 1)});
    set(n, "perm", std::vector<int64_t>{1, 0});
  }
  output("t" + std::to_string(kNodes));
  Graph g = import();
  Decisions decisions;
  run_passes(g, PipelineOptions{}, decisions);
  EXPECT_LE(g.live_nodes(), 3);
  for (const NodeId id : g.order()) EXPECT_LE(g.node(id).origin.size(), 256u);
}

TEST_F(LimitsTest, OnlyRegularFiles) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  refuses([&] { import_onnx(path("pipe")); }, {"pipe", "not a regular file"});
  refuses([&] { read_npy(path("pipe")); }, {"pipe", "not a regular file"});
  refuses([&] { read_npy(folder_.string()); }, {"a folder"});
  refuses([&] { import_onnx("/dev/zero"); }, {"/dev/zero", "not a regular file"});
  refuses([&] { read_npy("/dev/zero"); }, {"/dev/zero", "not a regular file"});
}

TEST_F(LimitsTest, HeaderOfNpySaysWhatIsWrong) {
  const auto with = [&](std::string header) {
    header.resize(53, ' ');
    write("x.npy", std::string("\x93NUMPY\x01\x00\x36\x00", 10) + header + "\n" + std::string(8, '\0'));
    return path("x.npy");
  };
  EXPECT_EQ(read_npy(with("{'descr':'<f4','fortran_order':False,'shape':(2,)}")).elements(), 2);
  refuses([&] { read_npy(with("{'descr':'<f4','fortran_order':0,'shape':(2,)}")); }, {"True or False"});
  refuses([&] { read_npy(with("{'descr':'<f4','shape':(2,)}")); }, {"missing"});
  refuses([&] { read_npy(with("{'descr':'<f4','fortran_order':False,'shape':(a,)}")); }, {"extent", "'a,)"});
}

TEST_F(LimitsTest, DimsThatThereAreNot) {
  input("x", {"batch", "4"});
  node("Relu", {"x"}, {"y"});
  output("y");
  write("m.onnx", model_.SerializeAsString());
  refuses([&] { inspect_model(path("m.onnx"), {{"N", 3}}); }, {"'N'", "batch"});
  refuses([&] { load_model(path("m.onnx"), {.dims = {{"N", 3}}}); }, {"'N'", "batch"});
  refuses([&] { load_model(path("m.onnx"), {.dims = {{"batch", -3}}}); }, {"batch", "-3"});
}

TEST_F(LimitsTest, ADeclaredShapeThatContradictsIsNoted) {
  input("x", {"2", "4"});
  node("Relu", {"x"}, {"y"});
  output("y");
  set_type(*graph().mutable_output(0), {"2", "5"}, 1);
  write("m.onnx", model_.SerializeAsString());
  std::vector<std::string> notes;
  load_model(path("m.onnx"), {}, notes);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0], "output 'y' is declared as [2,5], but it is [2,4]");
  graph().mutable_output(0)->clear_type();
  set_type(*graph().mutable_output(0), {"n", "4"}, 1);
  write("m.onnx", model_.SerializeAsString());
  notes.clear();  // they are added to
  load_model(path("m.onnx"), {}, notes);
  EXPECT_TRUE(notes.empty());
}

TEST_F(LimitsTest, IndicesOutOfRangeNameTheNode) {
  for (const char* op : {"Gather", "GatherElements"}) {
    model_.clear_graph();
    input("x", {"4"});
    input("i", {"2"}, 7);
    node(op, {"x", "i"}, {"y"}, "pick");
    output("y");
    LoadOptions load;
    load.inputs["i"] = Tensor::of<int64_t>({2}, {1, 9});
    Model model = bind_model(import(), load);
    ConstantStore store;
    const Feeds feeds = model.feeds;
    refuses([&] { run_reference_graph(model.graph, feeds, 1); }, {"node 'pick'", op, "out of range"});
    Runner runner(compile(model, {}, store).plan, feeds);
    refuses([&] { runner.run(); }, {"node 'pick'", op, "out of range"});
  }
  model_.clear_graph();
  input("x", {"2", "3"});
  input("i", {"2"}, 7);
  node("NegativeLogLikelihoodLoss", {"x", "i"}, {"y"}, "nll");
  output("y");
  LoadOptions load;
  load.inputs["i"] = Tensor::of<int64_t>({2}, {1, 9});
  const Model model = bind_model(import(), load);
  refuses([&] { run_reference_graph(model.graph, model.feeds, 1); }, {"node 'nll'", "NegativeLogLikelihoodLoss"});
}

TEST_F(LimitsTest, SuiteWithoutDataOrCases) {
  std::filesystem::create_directories(folder_ / "empty");
  input("x", {"2"});
  node("Relu", {"x"}, {"y"});
  output("y");
  write("empty/model.onnx", model_.SerializeAsString());
  SuiteOptions options;
  options.run = [](const Graph& g, const std::vector<Tensor>& inputs) { return run_reference(g, inputs); };
  const SuiteResult r = run_suite(folder_.string(), options);
  ASSERT_EQ(r.wrong.size(), 1u);
  EXPECT_NE(r.wrong[0].reason.find("test_data_set_0"), std::string::npos);
  options.filter = "none*";
  refuses([&] { run_suite(folder_.string(), options); }, {"none*", "1 cases"});
}

TEST(Limits, WordsOfProblems) {
  const auto words = [](const std::string& op, const std::vector<std::string>& keys) {
    return [=] { parse_bench_problem(op, keys, 1); };
  };
  refuses(words("matmul", {"m=2", "n=2", "k=2", "batch=0"}), {"batch=0", "1 to"});
  refuses(words("matmul", {"m=", "n=2", "k=2"}), {"m="});
  for (const char* flag : {"trans_a=2", "trans_b=-1", "packed=7", "warm=2"})
    refuses(words("matmul", {"m=2", "n=2", "k=2", flag}), {flag, "0 to 1"});
  refuses(words("matmul", {"m=2", "n=2", "k=2", "alpha=abc"}), {"alpha=abc"});
  refuses(words("matmul", {"m=99999999999999999999", "n=2", "k=2"}), {"m=99999999999999999999"});
  refuses(words("LeakyRelu", {"shape=4", "alpha=abc"}), {"alpha=abc", "not a number"});
  refuses(words("conv", {"c=1", "h=8", "oc=1", "pad=2147483648"}), {"pad=2147483648", "2147483647"});
  refuses(words("conv", {"c=1", "h=8", "oc=1", "stride=0"}), {"stride=0"});
  refuses(words("attention", {"heads=4", "kv_heads=3", "q_len=2", "head_dim=2"}), {"kv_heads=3", "divide"});
  refuses(words("Softmax", {"x=f32[]", "axis=0"}), {"scalar"});
  const Problem relu = parse_bench_problem("relu", {"shape=4"}, 1).problem;
  refuses([&] { bench(relu, unmeasured_ceilings(), {.forced = "nope"}); }, {"'nope'", "cpu.program"});
}

TEST(Limits, Words) {
  constexpr std::string_view kWords[] = {"optimize", "run", "inspect", "tune"};
  EXPECT_EQ(nearest_word("optimise", kWords), "optimize");
  EXPECT_EQ(nearest_word("Inspct", kWords), "inspect");
  EXPECT_EQ(nearest_word("zzz", kWords), "");
  EXPECT_EQ(printable("a\x1b[31m\tb\n\xc2\x9b"
                      "\xc3\xa4"),
            "a\\x1b[31m\tb\n\\x9b\xc3\xa4");
  EXPECT_EQ(one_line(std::string_view("a\0b\n", 4)), "a\\x00b\\x0a");
}

TEST(Limits, MakeIsBounded) {
  MakeOptions options;
  options.seq.value = 1'000'000;
  refuses([&] { make_model("decoder", options, "/nowhere/m.onnx"); }, {"--seq 1000000", "8192"});
  options = {};
  options.batch.value = 1 << 30;
  refuses([&] { make_model("mlp", options, "/nowhere/m.onnx"); }, {"--batch", "1048576"});
}

TEST(Limits, AttentionWithoutKeysIsZero) {
  const OpSchema& op = *find_op("ScaledDotProductAttention", "ridgeline");
  const Tensor q = Tensor::of<float>({1, 1, 2}, {1, 2}), none = Tensor(DType::kF32, {1, 0, 2});
  EXPECT_EQ(run_reference(op, {}, {q, none, none}, 1, 1)[0].to_f64(), (std::vector<double>{0, 0}));
}

TEST(Limits, CheckNamesItsFolder) {
  CheckOptions options;
  options.cases = 1;
  options.case_directory = "/nowhere";
  refuses([&] { check(options); }, {"/nowhere"});
}

}  // namespace
}  // namespace ridgeline
