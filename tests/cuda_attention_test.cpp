// What attention's kernels for GPUs are told of a problem: where operands lie, what is seen, which tiles fit.
#include <gtest/gtest.h>

#include "kernels/cuda/attention/attention_kernels.h"
#include "kernels/cuda/attention/attention_shape.h"
#include "ops/catalogue.h"
#include "tune/cuda_ceilings.h"

namespace ridgeline::cuda {
namespace {

Problem problem(const std::string& text) {
  const size_t space = text.find(' ');
  Problem p = parse_problem(*find_op_in_any_domain(text.substr(0, space)), text.substr(space + 1));
  p.device = DeviceKind::kCuda;
  return p;
}

TEST(cuda_attention, PackedHeadsLieInTheLastAxis) {
  const AttentionArguments a = attention_arguments(
      problem("Attention Q=bf16[2,5,256] K=bf16[2,7,128] V=bf16[2,7,128] q_num_heads=4 kv_num_heads=2 is_causal=1"));
  EXPECT_EQ(a.depth, 64);
  EXPECT_EQ(a.heads, 4);
  EXPECT_EQ(a.kv_heads, 2);
  EXPECT_EQ(a.q.head, 64);
  EXPECT_EQ(a.q.row, 256);
  EXPECT_EQ(a.q.batch, 5 * 256);
  EXPECT_EQ(a.k.row, 128);
  EXPECT_EQ(a.y.row, 256);
  EXPECT_EQ(a.first_place, 0);  // without a cache the first query stands at the first key
  EXPECT_EQ(a.empty_is_zero, 1);
}

TEST(cuda_attention, CausalEndsWithTheLastKeyAndMasksBroadcast) {
  const AttentionArguments a = attention_arguments(
      problem("ScaledDotProductAttention q=f16[2,4,3,32] k=f16[2,2,9,32] v=f16[2,2,9,48] causal=1 mask=f16[4,1,9]"));
  EXPECT_EQ(a.first_place, 6);
  EXPECT_EQ(a.value_depth, 48);
  EXPECT_EQ(a.mask.batch, 0);
  EXPECT_EQ(a.mask.head, 9);
  EXPECT_EQ(a.mask.row, 0);
  EXPECT_EQ(a.mask.column, 1);
  EXPECT_EQ(a.mask_keys, 9);
  EXPECT_EQ(a.empty_is_zero, 0);
  const AttentionArguments three = attention_arguments(
      problem("ScaledDotProductAttention q=f32[3,5,8] k=f32[3,9,8] v=f32[3,9,8] mask=f32[5,9] scale=0.5"));
  EXPECT_EQ(three.heads, 1);
  EXPECT_EQ(three.q.batch, 40);
  EXPECT_EQ(three.mask.row, 9);
}

TEST(cuda_attention, ACacheIsPassedOnAndAShortMaskHidesTheRest) {
  const AttentionArguments a =
      attention_arguments(problem("Attention Q=f16[1,4,1,16] K=f16[1,2,1,16] V=f16[1,2,1,16] past_key=f16[1,2,30,16] "
                                  "past_value=f16[1,2,30,16] attn_mask=bool[1,20] outputs=3"));
  EXPECT_EQ(a.keys, 31);
  EXPECT_EQ(a.past, 30);
  EXPECT_EQ(a.first_place, 30);
  EXPECT_EQ(a.mask_keys, 20);
  EXPECT_EQ(a.present_k.head, 31 * 16);
  EXPECT_GT(attention_copy_blocks(a, 128), 0);
}

TEST(cuda_attention, EveryTileThatIsOfferedFits) {
  for (const char* text : {"ScaledDotProductAttention q=bf16[1,32,1,128] k=bf16[1,8,32768,128] v=bf16[1,8,32768,128]",
                           "ScaledDotProductAttention q=f16[3,4,7,256] k=f16[3,2,100,256] v=f16[3,2,100,256] causal=1",
                           "ScaledDotProductAttention q=bf16[1,16,512,64] k=bf16[1,16,512,64] v=bf16[1,16,512,64]",
                           "ScaledDotProductAttention q=bf16[1,16,5,128] k=bf16[1,16,5,128] v=bf16[1,16,5,128]"}) {
    const Problem p = problem(text);
    int ran = 0;
    for (const Kernel* kernel : attention_kernels()) {
      if (kernel->op != p.op->name || !kernel->supports(p).ok || !kernel->tiles) continue;
      ++ran;
      for (const Tile& tile : kernel->tiles(p)) {
        const TileCheck check = kernel->check_tile(p, tile);
        EXPECT_TRUE(check.fits()) << kernel->name << " " << text << ": " << check.reason << " " << check.over();
        EXPECT_EQ(kernel->source(p, tile).shared_bytes, check.bytes);
        EXPECT_GT(kernel->estimate(p, tile, unmeasured_cuda_ceilings()), 0);
      }
    }
    EXPECT_GE(ran, 2) << text;
  }
}

TEST(cuda_attention, SplitContextsKeepTheirSharesInTheWorkspaceWithoutClusters) {
  const Problem p = problem("ScaledDotProductAttention q=bf16[2,32,1,128] k=bf16[2,8,4096,128] v=bf16[2,8,4096,128]");
  EXPECT_EQ(kAttentionDecode.workspace(p, Tile{{16, 3, 4, 1}}), 0);
  EXPECT_EQ(kAttentionDecode.workspace(p, Tile{{1, 3, 4, 1}}), 0);
  EXPECT_EQ(kAttentionDecode.workspace(p, Tile{{5, 3, 4, 2}}), 2 * 8 * 5 * 16 * (128 + 2) * 4);
  EXPECT_FALSE(kAttentionDecode.check_tile(p, Tile{{12, 3, 4, 1}}).fits());
}

}  // namespace
}  // namespace ridgeline::cuda
