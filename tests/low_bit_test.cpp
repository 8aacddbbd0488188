// Products of narrow operands: exact integer sums at their extremes, and what rounding activations and weights may
// cost.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "graph_maker.h"
#include "kernel_problem.h"
#include "kernels/cpu/matmul/dot/dot_gemm.h"
#include "kernels/cpu/simd.h"
#include "ops/low_bit.h"
#include "optimize/pipeline.h"
#include "verify/reference_run.h"

namespace ridgeline {
namespace {

class Narrow : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { cpu::limit_isa(GetParam()); }
  void TearDown() override { cpu::limit_isa("native"); }
};

// u8 x s8 into i16 pairs saturates in the instruction that AVX2 has: 255 * 127 * 2 does not fit.
TEST_P(Narrow, IntegerSumsAreExactAtTheExtremes) {
  if (!cpu::dot_kernels(cpu::DotType::kU8S8).tile) FAIL() << "no dot-product kernel at " << GetParam();
  const int64_t m = 33, n = 40, k = 1027;
  for (const int a_value : {255, 128, 127, 1}) {
    for (const int b_value : {-128, 127, -1}) {
      std::vector<uint8_t> a(size_t(m * k), uint8_t(a_value));
      std::vector<int8_t> b(size_t(n * k), int8_t(b_value));
      std::vector<uint8_t> panels(size_t(cpu::dot_panel_bytes(cpu::DotType::kU8S8, k, n)));
      cpu::dot_pack(cpu::DotType::kU8S8, b.data(), DType::kI8, n, 1, k, n, panels.data(), 0, n);
      std::vector<int32_t> y(size_t(m * n), 7);
      cpu::DotGemm gemm;
      gemm.m = m, gemm.n = n, gemm.k = k;
      gemm.a = a.data();
      gemm.a_row_stride = k;
      gemm.panels = panels.data();
      gemm.context = y.data();
      gemm.finish = [](const void* context, const cpu::DotBlock& block) {
        int32_t* to = static_cast<int32_t*>(const_cast<void*>(context));
        for (int r = 0; r < block.rows; ++r)
          for (int c = 0; c < block.cols; ++c)
            to[(block.row + r) * 40 + block.col + c] = static_cast<const int32_t*>(block.sums)[r * 32 + c];
      };
      Tensor workspace(DType::kU8, {cpu::dot_workspace_bytes(gemm.type, m, n, k, 1)});
      cpu::dot_gemm(gemm, workspace.data(), ThreadPool(1));
      for (const int32_t got : y) ASSERT_EQ(got, int32_t(a_value * b_value * k));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Narrow, testing::Values("avx2", "avx512", "vnni", "native"));

// A level is off by half a step at most: |x - q| <= largest / 254, but for the rounding of the f32 arithmetic itself.
TEST(LowBit, ActivationsAreOffByHalfAStep) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 1);
  double worst = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<float> row(64);
    float largest = 0;
    for (float& x : row) {
      x = normal(random);
      largest = std::max(largest, std::fabs(x));
    }
    for (const float x : row) worst = std::max(worst, std::fabs(quantize_activation(x, largest) - double(x)) / largest);
  }
  EXPECT_LE(worst, 1.0 / 254 * (1 + 1e-5));
  EXPECT_GE(worst, 0.9 / 254) << "the bound is reached by nothing: is it rounded at all?";
  EXPECT_EQ(quantize_activation(0, 0), 0);
}

double relative_error(const Tensor& got, const Tensor& want) {
  double error = 0, norm = 0;
  for (int64_t i = 0; i < want.elements(); ++i) {
    error += std::pow(got.f64(i) - want.f64(i), 2);
    norm += std::pow(want.f64(i), 2);
  }
  return std::sqrt(error / norm);
}

// Two products with an activation between, of weights that are large enough to be lowered.
void two_products(G& g) {
  const ValueId x = g.input("x", {5, 64});
  const ValueId h = g.op("Relu", {g.op("Add", {g.op("MatMul", {x, g.weight({64, 96})}), g.weight({96})})});
  g.output(g.op("MatMul", {h, g.weight({96, 80})}));
}

TEST(LowBit, PassesLowerOnlyWhereTheyAreNamed) {
  std::mt19937 random(5);
  const Tensor x = test::random_tensor(DType::kF32, {5, 64}, random);
  for (const char* pass : {"", "lower_to_bf16", "lower_to_int8"}) {
    G g;
    two_products(g);
    const Tensor want = run_reference(g.graph, {x})[0];
    PipelineOptions options;
    options.disabled = {"fuse_epilogues", "fuse_residuals", "fuse_elementwise"};  // the reference runs no fused graph
    if (*pass) options.lossy.insert(pass);
    Decisions decisions;
    run_passes(g.graph, options, decisions);
    EXPECT_EQ(count(g.graph, "LowBitMatMul"), *pass ? 2 : 0) << pass;
    EXPECT_EQ(count(g.graph, "MatMul"), *pass ? 0 : 2) << pass;
    const double error = relative_error(run_reference(g.graph, {x})[0], want);
    // Rounding errors of both operands, independent: bf16 has 2^-9 each, 8 bits 1 / 254 of the largest over sqrt(3).
    const double bound = std::string_view(pass) == "lower_to_bf16"   ? 4 * std::ldexp(1, -9)
                         : std::string_view(pass) == "lower_to_int8" ? 0.04
                                                                     : 1e-6;
    EXPECT_LE(error, bound) << pass;
    if (*pass) EXPECT_GT(error, 1e-5) << pass << " rounded nothing";
  }
}

TEST(LowBit, WhatIsNoCandidateStaysWithItsReason) {
  G g;
  const ValueId x = g.input("x", {5, 30});
  g.output(g.op("MatMul", {x, g.weight({30, 8})}));
  PipelineOptions options;
  options.lossy.insert("lower_to_int8");
  Decisions decisions;
  run_passes(g.graph, options, decisions);
  EXPECT_EQ(count(g.graph, "LowBitMatMul"), 0);
  bool told = false;
  for (const Decision& d : decisions.all) told = told || d.reason_code == "too_small";
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace ridgeline
