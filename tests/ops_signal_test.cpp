// Sums over letters, transforms, random numbers and what is selected by content: hand values for what is easily got
// wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/philox.h"
#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/reference.h"
#include "kernels/kernel.h"
#include "ops/catalogue.h"
#include "ops/einsum.h"
#include "ops/selection.h"
#include "optimize/pipeline.h"

namespace ridgeline {
namespace {

using Numbers = std::vector<double>;
using Places = std::vector<int64_t>;

struct Named {
  std::string_view name;
  AttributeValue value;
};
Attributes with(std::initializer_list<Named> items) {
  Attributes a;
  for (const Named& item : items) a.set(item.name, item.value);
  return a;
}
Tensor floats(Extents shape, const std::vector<float>& values) { return Tensor::from<float>(std::move(shape), values); }
Tensor ints(const std::vector<int64_t>& values) { return Tensor::from<int64_t>({int64_t(values.size())}, values); }
std::vector<Tensor> run(std::string_view op, const std::vector<Tensor>& inputs, const Attributes& attributes = {},
                        int outputs = 1) {
  return run_reference(*find_op(op), attributes, inputs, outputs);
}

TEST(Einsum, ReadsItsEquation) {
  EXPECT_EQ(parse_einsum("b a", {2}).output, std::vector<int>({'a', 'b'}));  // in the order of the alphabet
  EXPECT_EQ(parse_einsum("ij, jk", {2, 2}).output, std::vector<int>({'i', 'k'}));
  EXPECT_EQ(parse_einsum("...i,...", {2, 3}).output, std::vector<int>({258, 257, 256, 'i'}));
  EXPECT_EQ(parse_einsum("i...->...", {3}).output, std::vector<int>({257, 256}));
  for (const char* wrong : {"i1->i", "ii->j", "ij->ii", "......->", "i.j", "i->i->i"})
    EXPECT_FALSE(parse_einsum(wrong, {2}).fault.empty()) << wrong;
  EXPECT_FALSE(parse_einsum("ij,jk", {2}).fault.empty());
  EXPECT_FALSE(parse_einsum("ijk", {2}).fault.empty());
  EXPECT_FALSE(parse_einsum("...ijk", {2}).fault.empty());
}

TEST(Einsum, BecomesAProductOfMatrices) {
  Graph graph;
  const Dim n = Dim::symbol("n");
  const ValueId q = graph.add_input("q", DType::kF32, Shape{1, n, 4, 16}),
                k = graph.add_input("k", DType::kF32, Shape{1, n, 4, 16});
  const NodeId node = graph.add_node(*find_op("Einsum"), {q, k}, with({{"equation", std::string("bihd,bjhd->bhij")}}));
  graph.mark_output(graph.node(node).output());
  Decisions decisions;
  run_passes(graph, {}, decisions);
  int products = 0;
  for (const NodeId id : graph.order()) {
    EXPECT_FALSE(graph.node(id).is("Einsum"));
    products += graph.node(id).is("MatMul");
  }
  EXPECT_EQ(products, 1);
  EXPECT_EQ(text(graph.value(graph.outputs[0]).shape()), "[1,4,n,n]");
}

// Known answers of the authors' own test vectors.
TEST(Random, PhiloxCountsAsItsAuthorsDo) {
  using Words = std::array<uint32_t, 4>;
  static_assert(philox({0, 0}, 0) == Words{0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u});
  EXPECT_NE(philox({0, 0}, 1), philox({1, 0}, 0));
}

TEST(Random, HaveTheirDistribution) {
  const std::vector<double> u =
      run("RandomUniform", {ints({100, 100})}, with({{"low", 2.0}, {"high", 4.0}}))[0].to_f64();
  const std::vector<double> z =
      run("RandomNormal", {ints({100, 100})}, with({{"mean", 1.0}, {"scale", 3.0}}))[0].to_f64();
  double mean = 0, normal_mean = 0, square = 0;
  for (size_t k = 0; k < u.size(); ++k) {
    ASSERT_TRUE(u[k] >= 2 && u[k] < 4);
    mean += u[k] / double(u.size());
    normal_mean += z[k] / double(z.size());
    square += (z[k] - 1) * (z[k] - 1) / double(z.size());
  }
  EXPECT_NEAR(mean, 3, 0.02);
  EXPECT_NEAR(normal_mean, 1, 0.12);
  EXPECT_NEAR(std::sqrt(square), 3, 0.1);
  const Tensor p = floats({4}, {0, 1, 0, 1});
  EXPECT_EQ(run("Bernoulli", {p}, with({{"seed", 4.0}}))[0].to_f64(), Numbers({0, 1, 0, 1}));
  const float never = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(run("Multinomial", {floats({1, 3}, {never, 0, never})}, with({{"sample_size", int64_t(4)}}))[0].to_f64(),
            Numbers({1, 1, 1, 1}));
}

TEST(Selection, BoxesThatOverlapGo) {
  const std::vector<float> boxes = {0, 0, 1, 1, 0, 0.1f, 1, 1.1f, 1, 1, 0, 0, 5, 5, 6, 6, 2, 2, 2, 2};
  const std::vector<float> scores = {0.5f, 0.9f, 0.9f, std::nanf(""), 0.1f};
  BoxSelection s{1, 5, 1};
  s.box = boxes.data();
  s.score = scores.data();
  s.most = 5;
  s.overlap = 0.5f;
  // 1 and 2 tie: the lower one; 2 and 0 overlap it; the box without area stays; NaN is last.
  EXPECT_EQ(select_boxes(s), Places({0, 0, 1, 0, 0, 4, 0, 0, 3}));
  s.has_threshold = true;
  s.threshold = 0.1f;
  EXPECT_EQ(select_boxes(s), Places({0, 0, 1}));
  s.overlap = 1;
  EXPECT_EQ(select_boxes(s), Places({0, 0, 1, 0, 0, 2, 0, 0, 0}));
  s.most = 2;
  EXPECT_EQ(select_boxes(s), Places({0, 0, 1, 0, 0, 2}));
}

TEST(Selection, MoreBoxesThanABlockHolds) {
  std::vector<float> boxes, scores;
  for (int k = 0; k < 100; ++k) {  // pairs of equal boxes, far from the others
    const float at = float(k / 2) * 10;
    boxes.insert(boxes.end(), {at, at, at + 1, at + 1});
    scores.push_back(float(k));
  }
  BoxSelection s{1, 100, 1};
  s.box = boxes.data();
  s.score = scores.data();
  s.most = 100;
  const Places chosen = select_boxes(s);
  ASSERT_EQ(chosen.size(), 150u);
  for (size_t k = 0; k < 50; ++k) EXPECT_EQ(chosen[3 * k + 2], 99 - 2 * int64_t(k));
}

TEST(Selection, UniqueValuesAndSlices) {
  const float nan = std::nanf("");
  const std::vector<Tensor> y = run("Unique", {floats({6}, {2, nan, 1, 2, nan, -0.0f})}, {}, 4);
  ASSERT_EQ(y[0].elements(), 4);
  EXPECT_EQ(y[1].to_i64(), Places({5, 2, 0, 1}));
  EXPECT_EQ(y[2].to_i64(), Places({2, 3, 1, 2, 3, 0}));
  EXPECT_EQ(y[3].to_i64(), Places({1, 1, 2, 2}));
  const std::vector<Tensor> as_they_come =
      run("Unique", {floats({4}, {2, 1, 1, 3})}, with({{"sorted", int64_t(0)}}), 4);
  EXPECT_EQ(as_they_come[0].to_f64(), Numbers({2, 1, 3}));
  EXPECT_EQ(as_they_come[2].to_i64(), Places({0, 1, 1, 2}));
  const std::vector<Tensor> columns =
      run("Unique", {floats({2, 3}, {1, 0, 1, 2, 5, 2})}, with({{"axis", int64_t(-1)}}), 4);
  EXPECT_EQ(columns[0].to_f64(), Numbers({0, 1, 5, 2}));
  EXPECT_EQ(columns[2].to_i64(), Places({1, 0, 1}));
}

// Every kind of length: powers, mixed radices, primes (a chirp), and few series beside whole vectors of them.
TEST(Signal, FastTransformsOfEveryLength) {
  for (const int64_t n : {1, 2, 3, 12, 17, 60, 64, 77, 97, 169, 243, 331, 1000, 1024})
    for (const int64_t series : {1, 3, 21}) {
      SCOPED_TRACE(fmt::format("{} series of {}", series, n));
      const Problem p = parse_problem(*find_op("DFT"), fmt::format("input=f64[{},{},2] inverse={}", series, n, n % 2));
      Tensor x(DType::kF64, p.input(0).shape());
      for (int64_t k = 0; k < x.elements(); ++k) x.as<double>()[k] = std::sin(double(k) * 1.7) + double(k % 5);
      const Tensor want = run_reference(*p.op, p.attributes, {x}, 1)[0];
      const Choice choice = choose_kernel(p, Ceilings{}, "cpu.fft");
      const KernelCall call = bind_kernel(p, choice.winner());
      Tensor y(DType::kF64, p.output().shape());
      const Tensor workspace(DType::kU8, {std::max<int64_t>(1, call.workspace_bytes)});
      void *in = x.data(), *out = y.data();
      call.kernel->run(call, {&in, &out, workspace.data()}, ThreadPool(1));
      double worst = 0, largest = 0;
      for (int64_t k = 0; k < y.elements(); ++k) {
        worst = std::max(worst, std::fabs(y.f64(k) - want.f64(k)));
        largest = std::max(largest, std::fabs(want.f64(k)));
      }
      EXPECT_LE(worst, 1e-13 * largest);
    }
}

}  // namespace
}  // namespace ridgeline
