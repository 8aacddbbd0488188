// The elementwise operators: every schema's samples infer and run; hand values for what is easily got wrong.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "ir/graph.h"
#include "ir/problem.h"
#include "ir/reference.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor floats(const std::vector<float>& values) { return Tensor::from<float>({int64_t(values.size())}, values); }

std::vector<double> run(std::string_view op, const std::vector<Tensor>& inputs, const Attributes& attributes = {},
                        std::string_view domain = "") {
  const OpSchema* schema = find_op(op, domain);
  if (!schema) throw std::runtime_error("no " + std::string(op));
  return run_reference(*schema, attributes, inputs, 1)[0].to_f64();
}

Attributes with(std::string_view name, AttributeValue value) {
  Attributes a;
  a.set(name, std::move(value));
  return a;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t k = 0; k < got.size(); ++k) {
    if (std::isnan(want[k]))
      EXPECT_TRUE(std::isnan(got[k])) << k << ": " << got[k];
    else if (std::isinf(want[k]))
      EXPECT_EQ(got[k], want[k]) << k;
    else
      EXPECT_NEAR(got[k], want[k], tolerance * std::max(1.0, std::fabs(want[k]))) << k;
  }
}

TEST(Elementwise, NaNsPassAndBoundsHold) {
  expect_near(run("Relu", {floats({float(kNaN), -1, 2})}), {kNaN, 0, 2});
  expect_near(run("Max", {floats({float(kNaN), -1, 2}), floats({0, float(kNaN), 3})}), {kNaN, kNaN, 3});
  expect_near(run("Clip", {floats({float(kNaN), -9, 9}), Tensor::scalar(-1.0f), Tensor::scalar(1.0f)}), {kNaN, -1, 1});
  expect_near(run("Clip", {floats({-9, 9}), Tensor(), Tensor::scalar(1.0f)}), {-9, 1});
  expect_near(run("Clip", {floats({-9, 9}), Tensor::scalar(1.0f)}), {1, 9});
  expect_near(run("LeakyRelu", {floats({-2, 2, float(kNaN)})}), {-0.02, 2, kNaN});
}

TEST(Elementwise, Activations) {
  const Tensor x = floats({-2, -0.5f, 0, 0.75f, 3});
  expect_near(run("Gelu", {x}), {-0.04550026, -0.15426877, 0, 0.58002948, 2.99595031});
  expect_near(run("Gelu", {x}, with("approximate", std::string("tanh"))),
              {-0.04540231, -0.15428599, 0, 0.57996035, 2.99636261});
  expect_near(run("BiasGelu", {floats({-2.5f, 0.25f}), floats({0.5f})}, {}, "com.microsoft"),
              {-0.04550026, 0.58002948});
  expect_near(run("HardSwish", {x}), {-2.0 / 6, -0.5 * (0.5 - 0.5 / 6), 0, 0.75 * (0.5 + 0.125), 3});
  expect_near(run("HardSigmoid", {x}), {0.1, 0.4, 0.5, 0.65, 1});
  expect_near(run("Elu", {x}, with("alpha", 2.0)), {2 * std::expm1(-2.0), 2 * std::expm1(-0.5), 0, 0.75, 3});
  expect_near(run("Celu", {x}, with("alpha", 2.0)), {2 * std::expm1(-1.0), 2 * std::expm1(-0.25), 0, 0.75, 3});
  expect_near(run("Selu", {x}), {1.0507009873554805 * 1.6732632423543772 * std::expm1(-2.0),
                                 1.0507009873554805 * 1.6732632423543772 * std::expm1(-0.5), 0,
                                 1.0507009873554805 * 0.75, 1.0507009873554805 * 3});
  expect_near(run("Mish", {x}), {-0.2525014827, -0.2207442335, 0, 0.6100183129, 2.9865350049});
  expect_near(run("SiLU", {x}, {}, "ridgeline"), {-2 / (1 + std::exp(2.0)), -0.5 / (1 + std::exp(0.5)), 0,
                                                  0.75 / (1 + std::exp(-0.75)), 3 / (1 + std::exp(-3.0))});
  expect_near(run("Shrink", {x}, with("bias", 0.25)), {-1.75, 0, 0, 0.5, 2.75});
  expect_near(run("ThresholdedRelu", {x}), {0, 0, 0, 0, 3});
  expect_near(run("PRelu", {x, floats({0.5f})}), {-1, -0.25, 0, 0.75, 3});
  expect_near(run("Softplus", {floats({-100, 0, 100})}), {std::exp(-100.0), std::log(2.0), 100});
}

TEST(Elementwise, IntegersAreExact) {
  const Tensor a = Tensor::of<int32_t>({4}, {7, -7, 7, -7}), b = Tensor::of<int32_t>({4}, {3, 3, -3, -3});
  expect_near(run("Div", {a, b}), {2, -2, -2, 2});
  expect_near(run("Mod", {a, b}), {1, 2, -2, -1});
  expect_near(run("Mod", {a, b}, with("fmod", int64_t(1))), {1, -1, 1, -1});
  expect_near(run("Add", {Tensor::of<uint8_t>({2}, {250, 1}), Tensor::of<uint8_t>({1}, {10})}), {4, 11});
  const Tensor big = Tensor::of<int64_t>({1}, {(int64_t(1) << 60) + 1});
  EXPECT_EQ(run_reference(*find_op("Add"), {}, {big, big}, 1)[0].i64(0), (int64_t(1) << 61) + 2);
  expect_near(run("BitShift", {Tensor::of<uint8_t>({3}, {129, 3, 1}), Tensor::of<uint8_t>({3}, {1, 2, 9})},
                  with("direction", std::string("LEFT"))),
              {2, 12, 0});
  expect_near(run("BitwiseNot", {Tensor::of<uint8_t>({2}, {0, 5})}), {255, 250});
  expect_near(run("Pow", {floats({2, 0, -3}), Tensor::of<int64_t>({3}, {-1, 0, 3})}), {0.5, 1, -27});
  expect_near(run("Relu", {Tensor::of<int32_t>({2}, {-4, 4})}), {0, 4});
}

TEST(Elementwise, Types) {
  expect_near(run("Cast", {floats({1.9f, -1.9f, 300})}, with("to", int64_t(2))), {1, 0, 255});
  expect_near(run("Cast", {floats({1.9f, -1.9f, 0.2f})}, with("to", int64_t(6))), {1, -1, 0});
  expect_near(run("Cast", {floats({1.9f, 0, -0.5f})}, with("to", int64_t(9))), {1, 0, 1});
  expect_near(run("Where", {Tensor::of<bool>({2, 1}, {true, false}), floats({1, 2}), floats({3, 4})}), {1, 2, 3, 4});
  expect_near(run("Equal", {floats({1, float(kNaN)}), floats({1, float(kNaN)})}), {1, 0});
  expect_near(run("IsInf", {floats({float(kInf), float(-kInf), 1})}, with("detect_negative", int64_t(0))), {1, 0, 0});
  expect_near(run("Not", {Tensor::of<bool>({2}, {true, false})}), {0, 1});
  expect_near(run("Mean", {floats({1, 2}), floats({3}), floats({5, 6})}), {3, 11.0 / 3});
  expect_near(run("Round", {floats({0.5f, 1.5f, 2.5f, -0.5f})}), {0, 2, 2, 0});
}

std::string rejection(std::string_view op, std::string_view keys) {
  try {
    parse_problem(*find_op(op), keys);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Elementwise, RejectionsNameWhatIsAllowed) {
  EXPECT_NE(rejection("Add", "x=f32[2] y=f32[3]").find("[3]"), std::string::npos);
  EXPECT_NE(rejection("Add", "x=f32[2] y=i64[2]").find("type"), std::string::npos);
  EXPECT_NE(rejection("And", "x=f32[2] y=f32[2]").find("bool"), std::string::npos);
  EXPECT_NE(rejection("PRelu", "x=f32[2] slope=f32[3,2]").find("broadcast"), std::string::npos);
  EXPECT_NE(rejection("Clip", "input=f32[2] min=f32[2]").find("scalar"), std::string::npos);
  EXPECT_NE(rejection("BitShift", "x=u8[2] y=u8[2] direction=UP").find("LEFT"), std::string::npos);
  EXPECT_NE(rejection("Cast", "input=f32[2] to=99").find("99"), std::string::npos);
}

}  // namespace
}  // namespace ridgeline
