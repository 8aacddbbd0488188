// The language of the library: dims, programs, graphs.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/problem.h"
#include "ir/reference.h"

namespace ridgeline {
namespace {

TEST(Dim, ArithmeticHasANormalForm) {
  const Dim n = Dim::symbol("N"), s = Dim::symbol("S");
  EXPECT_EQ((n + s) * Dim(2), Dim(2) * s + n + n);
  EXPECT_EQ((n * s * Dim(768)).text(), (s * Dim(768) * n).text());
  EXPECT_EQ(n - n, Dim(0));
  EXPECT_NE(n, s);
  EXPECT_EQ(floor_div(n * s * Dim(768), s * Dim(64)), n * Dim(12));
  EXPECT_EQ(floor_div(n + Dim(1), Dim(2)).evaluate({{"N", 6}}), 3);
  EXPECT_EQ(floor_div(n - Dim(7), Dim(2)).evaluate({{"N", 4}}), -2);  // floor, not truncation
  EXPECT_EQ(ceil_div(n, Dim(4)).evaluate({{"N", 9}}), 3);
}

TEST(Dim, AnUnboundSymbolIsNamed) {
  try {
    (Dim::symbol("batch") + Dim(1)).evaluate({});
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("batch"), std::string::npos);
    EXPECT_EQ(error.exit_code(), 2);
  }
}

TEST(Dim, BroadcastingIsCheckedWhenBound) {
  Dim out;
  ASSERT_TRUE(broadcast(Dim::symbol("A"), Dim::symbol("B"), out));
  EXPECT_EQ(out.evaluate({{"A", 0}, {"B", 1}}), 0);  // 1 gives way, also to 0
  EXPECT_EQ(out.evaluate({{"A", 5}, {"B", 1}}), 5);
  EXPECT_EQ(out.evaluate({{"A", 1}, {"B", 7}}), 7);
  EXPECT_THROW(out.evaluate({{"A", 2}, {"B", 3}}), Error);
  EXPECT_FALSE(broadcast(Dim(2), Dim(3), out));
}

TEST(Dim, OverflowIsAnError) {
  const Dim big = Dim(int64_t(1) << 40);
  EXPECT_THROW(big * big, Error);
}

Program parse(std::string_view text) {
  static constexpr std::array<std::string_view, 3> kNames = {"x", "y", "z"};
  return Program::parse(text, kNames, DType::kF32);
}
double value(const Program& p, double x, double y = 0, double z = 0) {
  std::array<ScalarValue, 3> in = {{{x, 0}, {y, 0}, {z, 0}}};
  ScalarValue out;
  evaluate(p, std::span(in).first(p.inputs.size()), {&out, 1});
  return is_float(p.output_dtype()) ? out.f : double(out.i);
}

TEST(Program, ReadsAndPrintsExpressions) {
  EXPECT_DOUBLE_EQ(value(parse("x + y * z"), 2, 3, 4), 14);
  EXPECT_DOUBLE_EQ(value(parse("(x - y) / -z"), 10, 4, 3), -2);
  EXPECT_DOUBLE_EQ(value(parse("select(x < y, x, z)"), 5, 4, 9), 9);
  EXPECT_DOUBLE_EQ(value(parse("x * clamp(x / 6 + 0.5, 0, 1)"), 3), 3);
  for (std::string_view text : {"x * sigmoid(x)", "(x + y) * z", "x - (y - z)", "clamp(x, 0, 6)"}) {
    const Program p = parse(text);
    EXPECT_EQ(parse(p.text()), p) << p.text();
  }
  // What is used twice is named, and read again; numbers take the type of what they meet.
  const Program twice = parse("t0 = x + y; t0 * clamp(t0 / 6 + 0.5, 0, 1)");
  EXPECT_EQ(parse(twice.text()), twice) << twice.text();
  EXPECT_DOUBLE_EQ(value(twice, 1, 2), 3);
  EXPECT_EQ(twice.code.size(), 5u);
  const std::array<ProgramInput, 1> mask = {{{"m", DType::kI64}}};
  const Program cast = Program::parse("(1 - cast_f32(m)) * -10000", mask, DType::kI64);
  EXPECT_EQ(cast.output_dtype(), DType::kF32);
  EXPECT_EQ(Program::parse(cast.text(), mask, DType::kI64), cast) << cast.text();
  EXPECT_THROW(parse("t0 = x + y"), Error);  // no ';'
  EXPECT_THROW(parse("t0 == x; y"), Error);
  EXPECT_THROW(parse("x + q"), Error);
  EXPECT_THROW(parse("sigmoid(x, y)"), Error);
  EXPECT_THROW(parse("x +"), Error);
  EXPECT_THROW(parse("(x"), Error);
}

TEST(Program, ComposesAndSimplifies) {
  static constexpr std::array<std::string_view, 2> kTwo = {"a", "b"};
  const Program first = Program::parse("a * b", kTwo, DType::kF32),
                second = Program::parse("max(a + b, 0)", kTwo, DType::kF32);
  auto joined = Program::compose(first, 0, second, 0);
  ASSERT_TRUE(joined);
  ASSERT_EQ(joined->inputs.size(), 3u);
  joined->simplify();
  std::array<ScalarValue, 3> in = {{{3, 0}, {4, 0}, {-20, 0}}};
  ScalarValue out;
  evaluate(*joined, in, {&out, 1});
  EXPECT_EQ(out.f, 0);
  in[2].f = 5;
  evaluate(*joined, in, {&out, 1});
  EXPECT_EQ(out.f, 17);
  EXPECT_EQ(joined->count(ScalarOp::kRelu), 1);
  EXPECT_EQ(joined->count(ScalarOp::kFma), 1);
  EXPECT_EQ(joined->code.size(), 2u);
}

TEST(Program, ConstantsAreToldApartByTheirBits) {
  Program p = parse("max(x, 0)");
  p.bind_input(0, {DType::kF32, std::nan(""), 0});
  p.simplify();
  ScalarValue out;
  evaluate(p, {}, {&out, 1});
  EXPECT_TRUE(std::isnan(out.f));
  EXPECT_FALSE((ProgramConstant{DType::kF32, 0.0, 0} == ProgramConstant{DType::kF32, -0.0, 0}));
  const std::array<std::string_view, 2> names = {"a", "b"};
  const Program mod = Program::parse("mod(a, b)", names, DType::kU64);
  const std::array<ScalarValue, 2> in = {{{0, 1}, {0, -1}}};  // 1 mod 2^64 - 1
  evaluate(mod, in, {&out, 1});
  EXPECT_EQ(out.i, 1);
}

TEST(Program, SimplifyingKeepsMeaning) {
  for (std::string_view text : {"min(max(x, 0), 6)", "x * 1 + y * z", "pow(x, 2) - 0", "max(min(x, y), -1) * 2 + 3",
                                "(2 + 3) * x", "x / 1 + pow(y, 0.5)"}) {
    Program p = parse(text);
    const Program before = p;
    p.simplify();
    for (double x : {-7.5, -0.0, 0.25, 3.0, 8.0}) {
      EXPECT_NEAR(value(p, x, 2.5, -1.5), value(before, x, 2.5, -1.5), 1e-12) << text;
    }
  }
}

TEST(Program, EveryExporterSpellingIsRecognised) {
  static constexpr std::array<std::string_view, 1> kOne = {"x"};
  const std::pair<std::string_view, std::string> spellings[] = {
      {"x * 0.5 * (1 + erf(x / 1.41421356))", "Gelu"},
      {"0.5 * x * (erf(x * 0.7071067811865475) + 1)", "Gelu"},
      {"x * (0.5 * (1 + erf(x / 1.4142135381698608)))", "Gelu"},
      {"x * min(max(x + 3, 0), 6) / 6", "HardSwish"},
      {"x * clamp(x * 0.16666667 + 0.5, 0, 1)", "HardSwish"},
      {"x / (1 + exp(-x))", "SiLU"},
      {"x * sigmoid(1 * x)", "SiLU"},
      {"0.5 * x * (1 + tanh(0.79788456 * (x + 0.044715 * pow(x, 3))))", "GeluTanh"},
      {"max(x, 0)", "Relu"},
  };
  for (const auto& [text, name] : spellings)
    EXPECT_EQ(known_function(Program::parse(text, kOne, DType::kF32)), name) << text;
  EXPECT_EQ(known_function(Program::parse("x * 0.5 * (1 + erf(x))", kOne, DType::kF32)), "");
  EXPECT_EQ(known_function(Program::parse("x * clamp(x / 6 + 0.4, 0, 1)", kOne, DType::kF32)), "");
  // What differs only far out is another function: recognised ones run as themselves.
  for (std::string_view text :
       {"clamp(x, -20, 20) * sigmoid(x)", "min(x * sigmoid(x), 20)", "max(2 * min(x, -inf), 0)", "min(exp(x), 1e9)",
        "select(x > 1000, 5, sigmoid(x))", "clamp(x, -20, 20) * 0.5 * erfc(-x * 0.70710678118654752)"})
    EXPECT_EQ(known_function(Program::parse(text, kOne, DType::kF32)), "") << text;
}

TEST(Program, IntegersWrapAndNanPropagates) {
  static constexpr std::array<std::string_view, 2> kTwo = {"a", "b"};
  const Program sum = Program::parse("a + b", kTwo, DType::kI8);
  std::array<ScalarValue, 2> in = {{{0, 100}, {0, 100}}};
  ScalarValue out;
  evaluate(sum, in, {&out, 1});
  EXPECT_EQ(out.i, -56);
  EXPECT_TRUE(std::isnan(value(parse("max(x, 0)"), NAN)));
  EXPECT_TRUE(std::isnan(value(parse("clamp(x, 0, 6)"), NAN)));
  EXPECT_EQ(value(parse("softplus(x)"), 1000), 1000);  // log(1 + exp(x)) overflows
}

Graph small_graph() {
  Graph g;
  g.name = "small";
  const ValueId x = g.add_input("x", DType::kF32, Shape{Dim::symbol("N"), 4});
  const ValueId w = g.add_constant("w", Tensor::from<float>({4, 3}, std::vector<float>(12, 0.5f)));
  const ValueId y = g.node(g.add_node(*find_op("MatMul"), {x, w}, {}, 1, {"y"})).output();
  const ValueId z = g.node(g.add_node(*find_op("Relu"), {y}, {}, 1, {"z"})).output();
  g.mark_output(z);
  return g;
}

TEST(Graph, InfersAndVerifies) {
  Graph g = small_graph();
  EXPECT_TRUE(g.verify().empty()) << g.verify().front();
  EXPECT_EQ(text(g.value(g.find_value("z")).shape()), "[N,3]");
  EXPECT_EQ(g.symbols(), std::vector<std::string>{"N"});
  EXPECT_NE(g.text().find("y:f32[N,3] = MatMul(x:f32[N,4], w:f32[4,3]!)"), std::string::npos) << g.text();
}

TEST(Graph, ReplacingAnOutputKeepsItsName) {
  Graph g = small_graph();
  const ValueId z = g.find_value("z");
  const ValueId relu = g.node(g.add_node(*find_op("Sigmoid"), {g.find_value("y")})).output();
  g.replace_uses(z, relu);
  EXPECT_EQ(g.value(g.outputs[0]).name, "z");
  g.remove_dead();
  EXPECT_EQ(g.live_nodes(), 2);
  EXPECT_TRUE(g.verify().empty()) << g.verify().front();
}

TEST(Graph, FaultsAreFound) {
  Graph g = small_graph();
  *g.value(g.find_value("y")).info.shape = Shape{1, 2};
  EXPECT_FALSE(g.verify().empty());
  Graph cyclic = small_graph();
  Node& matmul = *cyclic.producer(cyclic.find_value("y"));
  cyclic.set_input(matmul, 0, cyclic.find_value("z"));
  EXPECT_THROW(cyclic.order(), Error);
}

TEST(Problem, TextIsReadBack) {
  for (const char* line :
       {"a=f32[7,13] b=f32[13,5]!", "a=f32[2,7,13] b=f32[13,5]! e1=f32[5]! epilogue='relu(v + e1)'"}) {
    const Problem p = parse_problem(*find_op("MatMul"), line);
    const Problem again = parse_problem(*find_op("MatMul"), p.text());
    EXPECT_EQ(p.text(), again.text());
  }
  EXPECT_THROW(parse_problem(*find_op("MatMul"), "a=f32[7,13] b=f32[12,5]"), Error);
  EXPECT_THROW(parse_problem(*find_op("MatMul"), "a=f32[7,13] q=1"), Error);
}

TEST(Reference, RunsADecomposition) {
  // A composite's decomposition agrees with its own reference.
  const OpSchema& norm = *find_op("LayerNormalization");
  ASSERT_FALSE(norm.decompose.empty());
  const Tensor x = Tensor::from<float>({2, 4}, {1, 2, 3, 5, -1, 0, 4, 2}),
               scale = Tensor::from<float>({4}, {1, 2, 0.5, 1}), bias = Tensor::from<float>({4}, {0, 1, 0, -1});
  std::vector<ValueInfo> infos;
  for (const Tensor& t : {x, scale, bias}) infos.push_back({t.dtype(), to_shape(t.shape()), std::nullopt, {}});
  const Graph g = decompose(norm, {}, infos, 1);
  EXPECT_GT(g.live_nodes(), 3);
  EXPECT_TRUE(g.verify().empty());
  const double mean = 2.75, var = (1.75 * 1.75 + .75 * .75 + .25 * .25 + 2.25 * 2.25) / 4;
  const Tensor y = run_reference(norm, {}, {x, scale, bias}, 1)[0];
  EXPECT_NEAR(y.f64(1), (2 - mean) / std::sqrt(var + 1e-5) * 2 + 1, 1e-5);
}

}  // namespace
}  // namespace ridgeline
