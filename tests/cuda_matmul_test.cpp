// Host parts of the products on GPUs, without a card: how operands are walked, packed weights, what tiles are refused.
#include <gtest/gtest.h>

#include "kernels/cuda/matmul/product.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

using namespace cuda;

Problem problem(const std::string& op, const std::string& keys) {
  Problem p = parse_problem(*find_op_in_any_domain(op), keys);
  p.device = DeviceKind::kCuda;
  return p;
}

const Kernel& kernel(const std::string& name, const std::string& op) {
  for (const Kernel* k : all_kernels(DeviceKind::kCuda))
    if (k->name == name && k->op == op) return *k;
  throw std::runtime_error("no kernel " + name);
}

TEST(cuda_matmul, BatchesBecomeRowsWhereBIsOneMatrix) {
  const Product x = product_of(problem("MatMul", "a=bf16[3,5,7,64] b=bf16[64,32] epilogue='v + e1' e1=bf16[32]"));
  EXPECT_EQ(x.refusal, "");
  EXPECT_EQ(x.m, 105);
  EXPECT_TRUE(x.batch.empty());
  EXPECT_EQ(x.a.row, 64);
  EXPECT_EQ(x.further.at(0).row, 0);
  EXPECT_EQ(x.further.at(0).column, 1);
}

TEST(cuda_matmul, RowsStayApartWhereAnOperandRepeats) {
  const Product x = product_of(problem("MatMul", "a=f32[3,5,64] b=f32[64,32] epilogue='v + e1' e1=f32[3,1,32]"));
  EXPECT_EQ(x.m, 5);
  ASSERT_EQ(x.batch, (std::vector<int64_t>{3}));
  EXPECT_EQ(x.further.at(0).row, 0);
  EXPECT_EQ(x.further.at(0).batch, (std::vector<int64_t>{32}));
}

TEST(cuda_matmul, GemmsAlphaAndCAreAProgram) {
  const Problem p = problem("Gemm", "a=f32[4,6] b=f32[6,5] c=f32[4,1] alpha=0.5 beta=2 epilogue='relu(v)'");
  const Product x = product_of(p);
  ASSERT_TRUE(x.tail.program);
  EXPECT_EQ(x.inputs, (std::vector<int>{2}));
  EXPECT_EQ(x.further.at(0).row, 1);
  EXPECT_EQ(x.further.at(0).column, 0);
  ScalarValue in[2], out[1];
  in[0].f = 3, in[1].f = -0.5;
  evaluate(*x.tail.program, in, out);
  EXPECT_DOUBLE_EQ(out[0].f, 0.5);
  in[0].f = 1;
  evaluate(*x.tail.program, in, out);
  EXPECT_DOUBLE_EQ(out[0].f, 0);
  // beta = 0: C is not read.
  EXPECT_TRUE(product_of(problem("Gemm", "a=f32[4,6] b=f32[6,5] c=f32[1] beta=0")).inputs.empty());
}

// Every element of B at its place, zeros behind the end of a row.
void expect_packed(const std::string& op, const std::string& keys, bool transposed) {
  const Problem p = problem(op, keys);
  const PackedB pack{true, 8};
  const Product x = product_of(p, pack);
  const int64_t row = packed_row(x, pack), matrices = p.input(1).elements() / (x.n * x.k);
  EXPECT_EQ(row % 8, 0);
  EXPECT_EQ(x.b.row, 1);
  EXPECT_EQ(x.b.column, row);
  Tensor b(DType::kBF16, p.input(1).shape());
  for (int64_t i = 0; i < b.elements(); ++i) b.as<uint16_t>()[i] = uint16_t(i + 1);
  const Packing packing = packing_of(p, pack);
  if (packing.key.empty()) {
    EXPECT_TRUE(transposed && row == x.k) << "only what lies so already is left as it is";
    return;
  }
  EXPECT_EQ(packing.bytes, matrices * x.n * row * 2);
  std::vector<uint16_t> packed(size_t(packing.bytes / 2), 0xffff);
  pack_b(p, pack, b, packed.data());
  for (int64_t m = 0; m < matrices; ++m)
    for (int64_t n = 0; n < x.n; ++n)
      for (int64_t k = 0; k < row; ++k) {
        const int64_t at = m * x.n * x.k + (transposed ? n * x.k + k : k * x.n + n);
        ASSERT_EQ(packed[size_t((m * x.n + n) * row + k)], k < x.k ? uint16_t(at + 1) : 0) << keys << n << " " << k;
      }
}

TEST(cuda_matmul, PacksConstantsAlongK) {
  expect_packed("MatMul", "a=bf16[5,33] b=bf16[33,70]!", false);
  expect_packed("MatMul", "a=bf16[3,5,64] b=bf16[3,64,9]!", false);
  expect_packed("Gemm", "a=bf16[5,33] b=bf16[70,33]! transB=1", true);
  expect_packed("Gemm", "a=bf16[5,64] b=bf16[70,64]! transB=1", true);
  expect_packed("MatMul", "a=bf16[5,33] b=bf16[33]!", false);
}

TEST(cuda_matmul, TilesSayWhatTheyAreOver) {
  const Problem p = problem("MatMul", "a=bf16[4096,4096] b=bf16[4096,4096]!");
  const Kernel& wgmma = kernel("cuda.matmul_wgmma", "MatMul");
  ASSERT_TRUE(wgmma.supports(p).ok) << wgmma.supports(p).reason;
  EXPECT_TRUE(check_tile(wgmma, p, {{128, 256, 1}}).fits());
  EXPECT_TRUE(check_tile(wgmma, p, {{256, 176, 1}}).fits());
  EXPECT_NE(check_tile(wgmma, p, {{128, 250, 1}}).reason, "");
  EXPECT_NE(check_tile(wgmma, p, {{96, 128, 1}}).reason, "");
  EXPECT_NE(check_tile(wgmma, p, {{128, 128, 2}}).reason, "");
  const Kernel& split = kernel("cuda.matmul_split_k", "MatMul");
  const Problem thin = problem("MatMul", "a=bf16[64,4096] b=bf16[4096,4096]!");
  ASSERT_TRUE(split.supports(thin).ok);
  EXPECT_FALSE(split.supports(p).ok);
  const Problem some = problem("MatMul", "a=bf16[256,4096] b=bf16[4096,4096] epilogue='cast_f32(v)'");
  ASSERT_TRUE(split.supports(some).ok);
  for (const Problem* q : {&thin, &some})
    for (const Tile& tile : split.tiles(*q))
      EXPECT_TRUE(check_tile(split, *q, tile).fits()) << tile.size[0] << "x" << tile.size[1] << "x" << tile.size[2];
  EXPECT_NE(check_tile(split, thin, {{64, 8 * 9, 2}}).reason, "");
  for (const Tile& tile : wgmma.tiles(p))
    EXPECT_TRUE(check_tile(wgmma, p, tile).fits()) << tile.size[0] << tile.size[1];
}

TEST(cuda_matmul, BulkCopiesWantWholeWords) {
  const Kernel& wgmma = kernel("cuda.matmul_wgmma", "MatMul");
  EXPECT_TRUE(wgmma.supports(problem("MatMul", "a=bf16[64,64] b=bf16[64,33]!")).ok);
  EXPECT_FALSE(wgmma.supports(problem("MatMul", "a=bf16[64,33] b=bf16[33,64]!")).ok);
  EXPECT_FALSE(wgmma.supports(problem("MatMul", "a=bf16[64,64] b=bf16[64,33]")).ok);
  EXPECT_FALSE(wgmma.supports(problem("MatMul", "a=f32[64,64] b=f32[64,64]")).ok);
  EXPECT_TRUE(kernel("cuda.matmul_mma", "MatMul").supports(problem("MatMul", "a=bf16[64,33] b=bf16[33,64]")).ok);
}

}  // namespace
}  // namespace ridgeline
