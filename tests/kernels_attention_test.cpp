// Attention against the reference: strides of heads, masks, shared heads, causal, several blocks of keys.
#include <gtest/gtest.h>

#include "kernel_problem.h"
#include "kernels/cpu/attention/attention_kernels.h"
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
  for (const Kernel* kernel : cpu::attention_kernels()) {
    for (const char* keys :
         {"q=f32[1,2,7,16] k=f32[1,2,7,16] v=f32[1,2,7,16] scale=0.25",
          "q=f32[2,3,5,8] k=f32[2,3,9,8] v=f32[2,3,9,6] mask=f32[2,1,1,9] scale=0.35",
          "q=f32[3,5,8] k=f32[3,9,8] v=f32[3,9,8] mask=f32[5,9] scale=0.5",
          "q=f32[1,4,5,8] k=f32[1,2,7,8] v=f32[1,2,7,8] scale=0.35 causal=1",
          "q=f32[1,2,1,16] k=f32[1,2,33,16] v=f32[1,2,33,16] scale=0.25 causal=1",
          "q=f32[1,2,9,16] k=f32[1,2,5,16] v=f32[1,2,5,16] scale=0.25 causal=1",
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

TEST(AttentionKernels, SupportsSaysWhyNot) {
  const OpSchema& op = *find_op("ScaledDotProductAttention", "ridgeline");
  EXPECT_NE(cpu::kAttentionTilesKernel.supports(parse_problem(op, "q=f16[1,2,9,16] k=f16[1,2,9,16] v=f16[1,2,9,16]"))
                .reason.find("f32"),
            std::string::npos);
  EXPECT_FALSE(cpu::kAttentionTilesKernel
                   .supports(parse_problem(op, "q=f32[1,2,9,16] k=f32[1,2,9,16] v=f32[1,2,9,16] mask=f32[9,1]"))
                   .ok);
  EXPECT_TRUE(cpu::kAttentionRowsKernel
                  .supports(parse_problem(op, "q=f32[1,2,9,16] k=f32[1,2,9,16] v=f32[1,2,9,16] mask=f32[9,1]"))
                  .ok);
}

}  // namespace
}  // namespace ridgeline
