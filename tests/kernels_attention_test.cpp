// Attention against the reference: strides of heads, masks, shared heads, causal, several blocks of keys.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "kernel_problem.h"
#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/attention/attention_steps.h"
#include "kernels/cpu/simd.h"

namespace ridgeline {
namespace {

class Attention : public testing::TestWithParam<const char*> {
  void SetUp() override { cpu::limit_isa(GetParam()); }
  void TearDown() override { cpu::limit_isa("native"); }
};
INSTANTIATE_TEST_SUITE_P(Isa, Attention, testing::Values("native", "avx2", "scalar"));

TEST_P(Attention, AgainstReference) {
  const OpSchema& op = *find_op("ScaledDotProductAttention", "ridgeline");
  for (const Kernel* kernel : {&cpu::kAttentionTilesKernel, &cpu::kAttentionRowsKernel}) {
    for (const char* keys :
         {"q=f32[1,2,7,16] k=f32[1,2,7,16] v=f32[1,2,7,16] scale=0.25",
          "q=f32[2,3,5,8] k=f32[2,3,9,8] v=f32[2,3,9,6] mask=f32[2,1,1,9] scale=0.35",
          "q=f32[3,5,8] k=f32[3,9,8] v=f32[3,9,8] mask=f32[5,9] scale=0.5",
          "q=f32[1,4,5,8] k=f32[1,2,7,8] v=f32[1,2,7,8] scale=0.35 causal=1",
          "q=f32[1,2,1,16] k=f32[1,2,33,16] v=f32[1,2,33,16] scale=0.25 causal=1",
          "q=f32[1,2,9,16] k=f32[1,2,5,16] v=f32[1,2,5,16] scale=0.25 causal=1",
          "q=f32[1,2,3,0] k=f32[1,2,5,0] v=f32[1,2,5,7]", "q=f32[1,2,3,4] k=f32[1,2,5,4] v=f32[1,2,5,0]",
          "q=f32[0,2,3,8] k=f32[0,2,3,8] v=f32[0,2,3,8]", "q=f32[1,2,0,8] k=f32[1,2,3,8] v=f32[1,2,3,8]",
          "q=f32[1,2,3,8] k=f32[1,2,0,8] v=f32[1,2,0,8]",
          "q=f32[1,3,133,64]~25536x64x192x1 k=f32[1,3,70,64]~13440x64x192x1 v=f32[1,3,70,64]~13440x64x192x1 "
          "scale=0.125 out=~25536x64x192x1",
          "q=f32[1,1,300,16] k=f32[1,1,1500,16] v=f32[1,1,1500,24] scale=0.25",
          "q=f32[1,1,300,16] k=f32[1,1,1500,16] v=f32[1,1,1500,24] scale=0.25 causal=1",
          "q=f32[1,2,90,16] k=f32[1,2,1100,16] v=f32[1,2,1100,16] mask=f32[90,1100] scale=0.25"}) {
      test::check(*kernel, op, keys, 30, 1);
    }
  }
}

TEST_P(Attention, NarrowTypesAndSegmentsAgainstReference) {
  const OpSchema& op = *find_op("ScaledDotProductAttention", "ridgeline");
  for (const Kernel* kernel : {&cpu::kAttentionTilesKernel, &cpu::kAttentionRowsKernel}) {
    for (const char* keys :
         {"q=f16[2,6,3,20] k=f16[2,2,37,20] v=f16[2,2,37,11] mask=f16[2,1,3,1] scale=0.25",
          "q=bf16[1,4,17,33] k=bf16[1,4,65,33] v=bf16[1,4,65,7] scale=0.2 causal=1",
          "q=f16[1,2,9,16]~1152x16x128x1 k=f16[1,2,40,16]~1280x16x32x1 v=f16[1,2,40,16]~1280x16x32x1 scale=0.25",
          "q=bf16[1,1,3,300] k=bf16[1,1,5,300] v=bf16[1,1,5,777] scale=0.05",
          "q=f16[1,1,3,1] k=f16[1,1,5,1] v=f16[1,1,5,1]"}) {
      test::check(*kernel, op, keys, 4, 0.5);
    }
    for (const char* keys : {"q=f32[1,8,1,32] k=f32[1,2,1700,32] v=f32[1,2,1700,24] scale=0.2 causal=1",
                             "q=f32[1,1,3,16] k=f32[1,1,2100,16] v=f32[1,1,2100,16] mask=f32[3,2100] scale=0.25",
                             "q=f32[1,2,40,16] k=f32[1,1,1100,16] v=f32[1,1,1100,19] scale=0.25 causal=1"}) {
      test::check(*kernel, op, keys, 30, 1);
    }
  }
}

TEST_P(Attention, StandardAgainstReference) {
  const OpSchema& op = *find_op("Attention");
  for (const Kernel* kernel : {&cpu::kStandardAttentionTilesKernel, &cpu::kStandardAttentionRowsKernel}) {
    for (const char* keys :
         {"Q=f32[2,5,24] K=f32[2,7,12] V=f32[2,7,10] q_num_heads=4 kv_num_heads=2 is_causal=1",
          "Q=f32[1,2,3,8] K=f32[1,2,4,8] V=f32[1,2,4,8] attn_mask=bool[3,4] softcap=2.0",
          "Q=f32[2,2,5,8] K=f32[2,2,40,8] V=f32[2,2,40,8] attn_mask=f32[2,1,5,33] softcap=1.5 scale=0.7",
          "Q=f32[1,4,2,8] K=f32[1,2,2,8] V=f32[1,2,2,8] past_key=f32[1,2,5,8] past_value=f32[1,2,5,8] is_causal=1 "
          "outputs=3",
          "Q=f32[2,3,24] K=f32[2,3,12] V=f32[2,3,10] past_key=f32[2,2,17,6] past_value=f32[2,2,17,5] q_num_heads=4 "
          "kv_num_heads=2 outputs=3",
          "Q=f32[1,2,66,4] K=f32[1,2,66,4] V=f32[1,2,66,4] left_window_size=2 right_window_size=1",
          "Q=f32[1,2,90,4] K=f32[1,2,1300,4] V=f32[1,2,1300,4] left_window_size=20 is_causal=1",
          "Q=f32[4,4,3,8] K=f32[4,2,7,8] V=f32[4,2,7,5] nonpad_kv_seqlen=i64{3,7,0,2} is_causal=1",
          "Q=f32[3,2,1,8] K=f32[3,2,1300,8] V=f32[3,2,1300,5] nonpad_kv_seqlen=i64{3,1300,700}",
          "Q=f32[0,2,3,8] K=f32[0,2,3,8] V=f32[0,2,3,8]", "Q=f32[1,2,3,8] K=f32[1,2,0,8] V=f32[1,2,0,8]"}) {
      test::check(*kernel, op, keys, 30, 1);
    }
  }
}

// Weights between 1 and the least normal number, nothing below it, NaN of any payload.
TEST_P(Attention, WeightsAreExponentials) {
  std::vector<float> s;
  for (float x = 0; x > -100; x -= 0.0371f) s.push_back(x);
  const int64_t n = int64_t(s.size());
  std::vector<float> w = s;
  w.resize(size_t(n) + 3);
  cpu::RowState row = {-HUGE_VALF, 0};
  EXPECT_EQ(cpu::softmax_block(w.data(), 0, n, n + 3, &row), 0);
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) {
    const double x = s[size_t(i)], want = x < -87.3f ? 0 : std::exp(x);
    sum += want;
    ASSERT_NEAR(w[size_t(i)], want, want * 1.2e-7 * (x > -10 ? 2 : 4)) << x;
  }
  EXPECT_NEAR(row.sum, sum, sum * 1e-6);
  EXPECT_EQ(row.largest, 0);
  EXPECT_EQ(w[size_t(n)], 0);
  for (const uint32_t bits : {0x7fc00000u, 0x7fc00001u, 0xffc12345u}) {
    for (const float other : {1.0f, -HUGE_VALF}) {
      std::vector<float> few = {other, std::bit_cast<float>(bits), other};
      row = {-HUGE_VALF, 0};
      cpu::softmax_block(few.data(), 0, 3, 3, &row);
      EXPECT_TRUE(std::isnan(row.sum)) << bits << " beside " << other;
    }
  }
}

// Floors count the scores that somebody sees.
TEST(AttentionKernels, CostOfWhatIsSeen) {
  auto scores = [](const OpSchema& op, const char* keys) { return cost_of(parse_problem(op, keys)).special / 2; };
  const OpSchema& op = *find_op("ScaledDotProductAttention", "ridgeline");
  EXPECT_EQ(scores(op, "q=f32[2,3,4,8] k=f32[2,3,7,8] v=f32[2,3,7,8]"), 6 * 28);
  EXPECT_EQ(scores(op, "q=f32[2,3,4,8] k=f32[2,3,7,8] v=f32[2,3,7,8] causal=1"), 6 * (4 + 5 + 6 + 7));
  EXPECT_EQ(scores(op, "q=f32[1,1,4,8] k=f32[1,1,2,8] v=f32[1,1,2,8] causal=1"), 0 + 0 + 1 + 2);
  const OpSchema& standard = *find_op("Attention");
  EXPECT_EQ(scores(standard, "Q=f32[1,1,4,8] K=f32[1,1,7,8] V=f32[1,1,7,8] is_causal=1"), 1 + 2 + 3 + 4);
  EXPECT_EQ(scores(standard, "Q=f32[1,1,4,8] K=f32[1,1,7,8] V=f32[1,1,7,8] left_window_size=1 right_window_size=2"),
            3 + 4 + 4 + 4);
  EXPECT_EQ(scores(standard, "Q=f32[1,1,9,8] K=f32[1,1,2,8] V=f32[1,1,2,8] left_window_size=99"), 18);
}

TEST(AttentionKernels, RowsDoNotDependOnThreads) {
  const OpSchema& op = *find_op("ScaledDotProductAttention", "ridgeline");
  const char* keys = "q=f32[1,4,1,32] k=f32[1,2,3000,32] v=f32[1,2,3000,32] scale=0.2";
  const test::Result one = test::run_kernel(cpu::kAttentionRowsKernel, op, keys, 1);
  for (int threads : {2, 3}) {
    const test::Result more = test::run_kernel(cpu::kAttentionRowsKernel, op, keys, threads);
    for (int64_t i = 0; i < one.got[0].elements(); ++i) ASSERT_EQ(one.got[0].f64(i), more.got[0].f64(i)) << threads;
  }
}

TEST(AttentionKernels, SupportsSaysWhyNot) {
  const OpSchema& op = *find_op("ScaledDotProductAttention", "ridgeline");
  auto reason = [&](const OpSchema& schema, const char* keys) {
    return cpu::kAttentionTilesKernel.supports(parse_problem(schema, keys)).reason;
  };
  EXPECT_NE(reason(op, "q=f64[1,2,9,16] k=f64[1,2,9,16] v=f64[1,2,9,16]").find("f64"), std::string::npos);
  EXPECT_NE(reason(op, "q=f32[1,2,9,16]~576x288x32x2 k=f32[1,2,9,16] v=f32[1,2,9,16]").find("strided"),
            std::string::npos);
  EXPECT_EQ(reason(op, "q=f32[1,2,9,16] k=f32[1,2,9,16] v=f32[1,2,9,16] mask=f32[9,1]"), "");
  const OpSchema& standard = *find_op("Attention");
  EXPECT_NE(reason(standard, "Q=f32[1,2,9,16] K=f32[1,2,9,16] V=f32[1,2,9,16] outputs=4").find("qk_matmul_output"),
            std::string::npos);
  EXPECT_NE(reason(standard,
                   "Q=f32[1,2,9,16] K=f32[1,2,9,16] V=f32[1,2,9,16] past_key=f32[1,2,5,16] past_value=f32[1,2,5,16]")
                .find("cache"),
            std::string::npos);
}

}  // namespace
}  // namespace ridgeline
