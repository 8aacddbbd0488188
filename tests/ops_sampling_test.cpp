// Operators that sample, pool regions, put columns together and select: values by hand, data that is wrong, and the
// kernels against the references.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/graph.h"
#include "kernel_problem.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

using Numbers = std::vector<double>;

Tensor floats(Extents shape, const std::vector<float>& values) { return Tensor::from<float>(std::move(shape), values); }
Tensor ints(const std::vector<int64_t>& values) { return Tensor::from<int64_t>({int64_t(values.size())}, values); }
Tensor bools(const std::vector<int>& values) {
  Tensor t(DType::kBool, {int64_t(values.size())});
  for (size_t k = 0; k < values.size(); ++k) store_i64(t.dtype(), t.data(), int64_t(k), values[k]);
  return t;
}

struct Named {
  std::string_view name;
  AttributeValue value;
};
Tensor run(std::string_view op, const std::vector<Tensor>& inputs, std::initializer_list<Named> items = {}) {
  Attributes attributes;
  for (const Named& item : items) attributes.set(item.name, item.value);
  const OpSchema* schema = find_op(op);
  if (!schema) throw std::runtime_error("no " + std::string(op));
  return run_reference(*schema, attributes, inputs, 1)[0];
}

TEST(Sampling, GridSampleAtTheEnds) {
  const Tensor x = floats({1, 1, 1, 4}, {1, 2, 3, 4});
  const auto at = [&](float position, const char* padding, const char* mode, int64_t corners = 1) {
    return run("GridSample", {x, floats({1, 1, 1, 2}, {position, 0})},
               {{"padding_mode", std::string(padding)}, {"mode", std::string(mode)}, {"align_corners", corners}})
        .f64(0);
  };
  EXPECT_EQ(at(-1, "zeros", "linear"), 1);
  EXPECT_EQ(at(-1, "zeros", "linear", 0), 0.5);  // half of it lies outside
  EXPECT_EQ(at(-1, "border", "linear", 0), 1);
  EXPECT_EQ(at(3, "border", "linear"), 4);
  EXPECT_EQ(at(3, "zeros", "linear"), 0);
  EXPECT_EQ(at(3, "reflection", "linear"), 1);          // six beyond three, back past the other end
  EXPECT_EQ(at(1.5F, "reflection", "linear", 0), 3.5);  // at 4.5, one beyond 3.5, which is back at 2.5
  EXPECT_EQ(at(0, "zeros", "nearest"), 3);              // 1.5, to even
  EXPECT_EQ(at(-1.0F / 3, "zeros", "cubic"), 2);
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const char* mode : {"linear", "nearest", "cubic"}) {
    EXPECT_EQ(at(nan, "zeros", mode), 0);
    EXPECT_EQ(at(infinity, "zeros", mode), 0);
    EXPECT_EQ(at(infinity, "border", mode), 4);
    EXPECT_EQ(at(nan, "reflection", mode), 1);
  }
}

TEST(Sampling, AffineGridOfOneElement) {
  const Tensor theta = floats({1, 2, 3}, {2, 0, 0.5F, 0, 3, -0.5F});
  EXPECT_EQ(run("AffineGrid", {theta, ints({1, 1, 1, 1})}).to_f64(), (Numbers{0.5, -0.5}));
  EXPECT_EQ(run("AffineGrid", {theta, ints({1, 1, 1, 1})}, {{"align_corners", int64_t(1)}}).to_f64(),
            (Numbers{-1.5, -3.5}));
  EXPECT_EQ(run("AffineGrid", {theta, ints({1, 1, 1, 2})}).to_f64(), (Numbers{-0.5, -0.5, 1.5, -0.5}));
  EXPECT_THROW(run("AffineGrid", {theta, ints({2, 1, 1, 1})}), Error);
}

TEST(Sampling, RegionsThatAreWrong) {
  const Tensor x = floats({1, 1, 2, 2}, {1, 2, 3, 4}), zero = ints({0});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(run("RoiAlign", {x, floats({1, 4}, {0, 0, nan, 1}), zero}).f64(0)));
  EXPECT_TRUE(std::isnan(run("RoiAlign", {x, floats({1, 4}, {-3e38F, 0, 3e38F, 1}), zero}).f64(0)));
  EXPECT_THROW(run("RoiAlign", {x, floats({1, 4}, {0, 0, 1, 1}), ints({1})}), Error);
  EXPECT_THROW(run("RoiAlign", {x, floats({1, 4}, {0, 0, 1, 1}), ints({-1})}), Error);
  // A million elements wide, nearly all of them zeros outside.
  EXPECT_NEAR(run("RoiAlign", {x, floats({1, 4}, {0, 0, 1e6F, 1e6F}), zero}).f64(0), 0, 1e-9);
  EXPECT_EQ(run("RoiAlign", {x, floats({1, 4}, {1, 1, 0, 0}), zero}).f64(0), 0);  // ends before it begins: no sample
  EXPECT_THROW(
      run("MaxRoiPool", {x, floats({1, 5}, {nan, 0, 0, 1, 1})}, {{"pooled_shape", std::vector<int64_t>{1, 1}}}), Error);
  EXPECT_EQ(run("MaxRoiPool", {x, floats({2, 5}, {0, 0, 0, 0.4F, 1, 0, 7, 7, 9, 9})},
                {{"pooled_shape", std::vector<int64_t>{1, 1}}})
                .to_f64(),
            (Numbers{3, 0}));  // an empty bin is 0
}

TEST(Sampling, MaxUnpool) {
  const Tensor x = floats({1, 1, 1, 2}, {5, 6});
  const std::vector<int64_t> two = {1, 2};
  const auto places = [](std::vector<int64_t> at) { return Tensor::from<int64_t>({1, 1, 1, 2}, at); };
  EXPECT_EQ(run("MaxUnpool", {x, places({3, 0})}, {{"kernel_shape", two}, {"strides", two}}).to_f64(),
            (Numbers{6, 0, 0, 5}));
  EXPECT_EQ(
      run("MaxUnpool", {x, places({3, 0}), ints({1, 1, 2, 5})}, {{"kernel_shape", two}, {"strides", two}}).to_f64(),
      (Numbers{6, 0, 0, 5, 0, 0, 0, 0, 0, 0}));
  for (int64_t wrong : {int64_t(4), int64_t(-1), std::numeric_limits<int64_t>::max()})
    EXPECT_THROW(run("MaxUnpool", {x, places({0, wrong})}, {{"kernel_shape", two}, {"strides", two}}), Error);
  EXPECT_THROW(run("MaxUnpool", {x, places({0, 1}), ints({1, 1, 1, 3})}, {{"kernel_shape", two}, {"strides", two}}),
               Error);
}

TEST(Sampling, ColumnsThatOverlapAreAdded) {
  const Tensor x = floats({1, 2, 3}, {1, 2, 3, 10, 20, 30});
  EXPECT_EQ(run("Col2Im", {x, ints({4}), ints({2})}).to_f64(), (Numbers{1, 12, 23, 30}));
  EXPECT_THROW(run("Col2Im", {x, ints({5}), ints({2})}), Error);  // holds four blocks
  EXPECT_THROW(run("Col2Im", {x, ints({int64_t(1) << 62}), ints({2})}), Error);
  EXPECT_THROW(run("Col2Im", {x, ints({4}), ints({0})}), Error);
}

TEST(Sampling, DeformConvMovesItsTaps) {
  const Tensor x = floats({1, 1, 3}, {1, 2, 4}), w = floats({1, 1, 1}, {2});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(run("DeformConv", {x, w, floats({1, 1, 3}, {0.5F, -2, nan})}).to_f64(), (Numbers{3, 0, 0}));
  EXPECT_EQ(
      run("DeformConv", {x, w, floats({1, 1, 3}, {-0.5F, 0, 0.75F}), floats({1}, {1}), floats({1, 1, 3}, {1, 3, 1})})
          .to_f64(),
      (Numbers{2, 13, 3}));
}

TEST(Sampling, CompressAndCrop) {
  const Tensor x = floats({3, 2}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(run("Compress", {x, bools({0, 1, 1})}, {{"axis", int64_t(0)}}).to_f64(), (Numbers{3, 4, 5, 6}));
  EXPECT_EQ(run("Compress", {x, bools({0, 1, 0, 0, 1})}).to_f64(), (Numbers{2, 5}));
  EXPECT_EQ(run("Compress", {x, bools({})}).shape(), (Extents{0}));
  EXPECT_THROW(run("Compress", {x, bools({0, 0, 0, 1})}, {{"axis", int64_t(0)}}), Error);
  EXPECT_EQ(run("CenterCropPad", {floats({4}, {1, 2, 3, 4}), ints({1})}).to_f64(), (Numbers{2}));
  EXPECT_EQ(run("CenterCropPad", {floats({1}, {1}), ints({4})}).to_f64(), (Numbers{0, 1, 0, 0}));
}

TEST(Sampling, BitsProductsDeterminants) {
  EXPECT_EQ(run("BitCast", {floats({2}, {1, -0.0F})}, {{"to", int64_t(6)}}).to_i64(),
            (std::vector<int64_t>{0x3f800000, std::numeric_limits<int32_t>::min()}));
  EXPECT_THROW(run("BitCast", {floats({1}, {1})}, {{"to", int64_t(7)}}), Error);
  const Tensor x = floats({4}, {2, 3, 0, 5});
  EXPECT_EQ(run("CumProd", {x, Tensor::scalar<int64_t>(0)}).to_f64(), (Numbers{2, 6, 0, 0}));
  EXPECT_EQ(
      run("CumProd", {x, Tensor::scalar<int64_t>(-1)}, {{"reverse", int64_t(1)}, {"exclusive", int64_t(1)}}).to_f64(),
      (Numbers{0, 0, 5, 1}));
  EXPECT_THROW(run("CumProd", {x, Tensor::scalar<int64_t>(1)}), Error);
  EXPECT_EQ(run("Det", {floats({2, 2}, {0, 2, 3, 4})}).f64(0), -6);
  EXPECT_EQ(run("Det", {floats({2, 2}, {1, 2, 2, 4})}).f64(0), 0);
  EXPECT_EQ(run("Det", {floats({0, 0}, {})}).f64(0), 1);
}

TEST(Sampling, CompressWithAnotherConditionThanPlannedIsRefused) {
  const Problem p = parse_problem(*find_op("Compress"), "input=f32[3,2] condition=bool{0,1,1} axis=0");
  for (const Kernel* k : kernels_of("Compress")) {
    if (k->name != "cpu.compress") continue;
    const KernelCall call = bind_kernel(p, Candidate{.kernel = k, .tile = {}, .estimate_ns = 0, .support = {}});
    std::vector<float> x = {1, 2, 3, 4, 5, 6}, y(4);
    int64_t positions[3];
    for (const uint8_t third : {1, 0}) {
      const uint8_t condition[3] = {0, 1, third};
      const void* in[] = {x.data(), condition};
      void* out[] = {y.data()};
      const Buffers buffers{const_cast<void* const*>(in), out, positions};
      if (third) {
        k->run(call, buffers, ThreadPool(1));
        EXPECT_EQ(y, (std::vector<float>{3, 4, 5, 6}));
      } else {
        EXPECT_THROW(k->run(call, buffers, ThreadPool(1)), Error);
      }
    }
    return;
  }
  FAIL() << "there is no cpu.compress";
}

}  // namespace
}  // namespace ridgeline
