// Operators in the types and forms that came late: signed shifts, remainders of floats, quantization to small floats
// and to 2 bits, a live Dropout, SpaceToDepth by columns, 8-bit float products.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/reference.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor tensor(DType dtype, Extents shape, const std::vector<double>& values) {
  Tensor t = Tensor::zeros(dtype, std::move(shape));
  for (size_t k = 0; k < values.size(); ++k) store_f64(dtype, t.data(), int64_t(k), values[k]);
  return t;
}
Tensor row(DType dtype, const std::vector<double>& values) { return tensor(dtype, {int64_t(values.size())}, values); }

Attributes with(std::initializer_list<std::pair<const char*, AttributeValue>> list) {
  Attributes a;
  for (const auto& [key, value] : list) a.set(key, value);
  return a;
}

std::vector<Tensor> run(std::string_view op, const std::vector<Tensor>& inputs, const Attributes& attributes = {},
                        int outputs = 1) {
  return run_reference(*find_op(op), attributes, inputs, outputs);
}

TEST(LateForms, SignedShifts) {
  for (const DType dtype : {DType::kI8, DType::kI16, DType::kI32, DType::kI64}) {
    const int width = info(dtype).bits;
    const double least = -std::ldexp(1, width - 1);
    const Tensor x = row(dtype, {5, -5, 64, 1, -1, 7, -7, 3}),
                 y = row(dtype, {1, 1, 0, double(width - 1), double(width), -1, -1, double(width + 5)});
    EXPECT_EQ(run("BitShift", {x, y}, with({{"direction", std::string("LEFT")}}))[0].to_f64(),
              (std::vector<double>{10, -10, 64, least, 0, 0, 0, 0}))
        << name(dtype);
    EXPECT_EQ(run("BitShift", {x, y}, with({{"direction", std::string("RIGHT")}}))[0].to_f64(),
              (std::vector<double>{2, -3, 64, 0, -1, 0, -1, 0}))
        << name(dtype);
  }
}

TEST(LateForms, RemaindersOfFloats) {
  const std::vector<double> x = {-3, 3, 5.5, -5.5, 0.0, -0.0, -1, 1, kInf, 1, kNaN, 4},
                            y = {kInf, kInf, 2, 2, -2, 2, -kInf, -kInf, 2, 0, 2, -2},
                            want = {kInf, 3, 1.5, 0.5, -0.0, 0.0, -1, -kInf, kNaN, kNaN, kNaN, -0.0};
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32, DType::kF64}) {
    const std::vector<double> got = run("Mod", {row(dtype, x), row(dtype, y)})[0].to_f64();
    for (size_t k = 0; k < x.size(); ++k) {
      EXPECT_TRUE(got[k] == want[k] || (std::isnan(got[k]) && std::isnan(want[k]))) << k << ": " << got[k];
      if (want[k] == 0) EXPECT_EQ(std::signbit(got[k]), std::signbit(want[k])) << k;
    }
  }
}

TEST(LateForms, ShrinkOfIntegersByAFraction) {
  const Attributes a = with({{"lambd", 1.5}, {"bias", 1.5}});
  EXPECT_EQ(run("Shrink", {row(DType::kI32, {-3, -1, 0, 1, 2, 5})}, a)[0].to_f64(),
            (std::vector<double>{-1, 0, 0, 0, 0, 3}));
  EXPECT_EQ(run("Shrink", {row(DType::kU8, {0, 1, 2, 5, 255})}, a)[0].to_f64(), (std::vector<double>{0, 0, 0, 3, 253}));
}

TEST(LateForms, QuantizesToSmallTypes) {
  const Tensor x = row(DType::kF32, {0, 2.5, 4.8, 1e4, -30, -0.3}), scale = tensor(DType::kF32, {}, {2});
  const auto quantized = [&](DType to, bool saturate) {
    return run("QuantizeLinear", {x, scale, Tensor::zeros(to, {})}, with({{"saturate", int64_t(saturate)}}))[0]
        .to_f64();
  };
  EXPECT_EQ(quantized(DType::kF4E2M1, true), (std::vector<double>{0, 1, 2, 6, -6, -0.0}));
  EXPECT_EQ(quantized(DType::kF4E2M1, false), quantized(DType::kF4E2M1, true));
  EXPECT_EQ(quantized(DType::kI2, true), (std::vector<double>{0, 1, 1, 1, -2, 0}));
  EXPECT_EQ(quantized(DType::kU2, true), (std::vector<double>{0, 1, 2, 3, 0, 0}));
  EXPECT_EQ(quantized(DType::kF8E4M3Fnuz, true)[3], 240);
  EXPECT_TRUE(std::isnan(quantized(DType::kF8E4M3Fnuz, false)[3]));
  EXPECT_EQ(quantized(DType::kF8E5M2, false)[4], -15 - 1);  // 15 lies between 14 and 16, and 16 is even
  // A block has one power of two; the result is of the type asked for.
  const Tensor levels = tensor(DType::kF4E2M1, {2, 4}, {1, -6, 0.5, 4, 3, 2, 1, -1.5});
  const Tensor scales = tensor(DType::kF8E8M0, {2, 2}, {2, 0.25, 1, 8});
  EXPECT_EQ(run("DequantizeLinear", {levels, scales},
                with({{"block_size", int64_t(2)}, {"axis", int64_t(-1)}, {"output_dtype", int64_t(1)}}))[0]
                .to_f64(),
            (std::vector<double>{2, -12, 0.125, 1, 3, 2, 8, -12}));
  // precision: 1 / 3 in f16 is 0.33325, times 3000 it is another level.
  const Tensor third = tensor(DType::kF32, {}, {3}), one = row(DType::kF32, {1000});
  EXPECT_EQ(run("QuantizeLinear", {one, third}, with({{"output_dtype", int64_t(5)}}))[0].to_f64()[0], 333);
  EXPECT_EQ(run("QuantizeLinear", {row(DType::kF32, {2049}), tensor(DType::kF32, {}, {1})},
                with({{"output_dtype", int64_t(5)}, {"precision", int64_t(10)}}))[0]
                .to_f64()[0],
            2048);
}

TEST(LateForms, ALiveDropoutIsSeeded) {
  constexpr int64_t kMany = 40000;
  Tensor x(DType::kF32, {kMany});
  for (int64_t k = 0; k < kMany; ++k) x.as<float>()[k] = float(k % 7 + 1);
  const Tensor ratio = tensor(DType::kF32, {}, {0.25}), training = tensor(DType::kBool, {}, {1});
  const auto drop = [&](int64_t seed) { return run("Dropout", {x, ratio, training}, with({{"seed", seed}}), 2); };
  const std::vector<Tensor> a = drop(7), again = drop(7), other = drop(8);
  int64_t kept = 0, same = 0;
  for (int64_t k = 0; k < kMany; ++k) {
    const bool keeps = a[1].i64(k) != 0;
    EXPECT_EQ(a[0].f64(k), keeps ? double(float(x.f64(k) / 0.75)) : 0) << k;
    kept += keeps;
    same += a[1].i64(k) == other[1].i64(k);
  }
  EXPECT_EQ(a[1].to_i64(), again[1].to_i64());
  EXPECT_NEAR(double(kept) / kMany, 0.75, 0.01);                   // 4.6 standard deviations
  EXPECT_NEAR(double(same) / kMany, 0.75 * 0.75 + 0.0625, 0.012);  // of two seeds that know nothing of each other
  EXPECT_EQ(run("Dropout", {x, ratio})[0].to_f64(), x.to_f64());
  EXPECT_THROW(run("Dropout", {x, tensor(DType::kF32, {}, {1}), training}), Error);
}

TEST(LateForms, SpaceToDepthByColumns) {
  Tensor x(DType::kI32, {2, 3, 4, 6});
  for (int64_t k = 0; k < x.elements(); ++k) x.as<int32_t>()[k] = int32_t(k);
  for (const char* mode : {"DCR", "CRD"}) {
    const Attributes a = with({{"blocksize", int64_t(2)}, {"mode", std::string(mode)}});
    const Tensor deep = run("SpaceToDepth", {x}, a)[0];
    EXPECT_EQ(run("DepthToSpace", {deep}, a)[0].to_i64(), x.to_i64()) << mode;
  }
  const Tensor deep = run("SpaceToDepth", {x}, with({{"blocksize", int64_t(2)}, {"mode", std::string("CRD")}}))[0];
  EXPECT_EQ(deep.i64(6), 1);  // the second channel: the first one's second column
}

TEST(LateForms, ProductsOfByteFloats) {
  const Tensor a = tensor(DType::kF8E4M3, {1, 3}, {1.5, -2, 0.25}), b = tensor(DType::kF8E4M3, {3, 1}, {4, 1, 8}),
               one = tensor(DType::kF32, {}, {1}), half = tensor(DType::kF32, {}, {0.5}),
               zero = Tensor::zeros(DType::kF8E4M3, {});
  EXPECT_EQ(run("QLinearMatMul", {a, one, zero, b, one, zero, half, zero})[0].to_f64(), std::vector<double>{12});
  const Tensor tiny = tensor(DType::kF32, {}, {1e-6});
  EXPECT_EQ(run("QLinearMatMul", {a, one, zero, b, one, zero, tiny, zero})[0].to_f64(), std::vector<double>{448});
}

TEST(LateForms, SmallTypesMove) {
  for (const DType dtype : {DType::kI4, DType::kU2, DType::kF6E3M2, DType::kF8E8M0, DType::kF8E5M2Fnuz}) {
    Tensor x = Tensor::zeros(dtype, {3, 5});
    for (int64_t k = 0; k < 15; ++k) store_f64(dtype, x.data(), k, double(1 << (k % 2)));
    const Tensor turned = run("Transpose", {x})[0];
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 5; ++j) EXPECT_EQ(turned.f64(j * 3 + i), x.f64(i * 5 + j)) << name(dtype);
    EXPECT_EQ(run("Reshape", {x, Tensor::from<int64_t>({1}, {15})})[0].to_f64(), x.to_f64());
    EXPECT_EQ(run("Pad", {x, Tensor::from<int64_t>({4}, {0, 0, 0, 1})})[0].shape(), (Extents{3, 6}));
  }
}

}  // namespace
}  // namespace ridgeline
