// Packing of weights for products of few rows on a GPU, without one: the matrix instruction is written out here from
// its description (PTX ISA, mma.m16n8k16: which lane holds what), and fed as the kernel feeds it.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/cuda/matvec/rows_shape.h"
#include "ops/catalogue.h"
#include "tune/cuda_ceilings.h"

namespace ridgeline {
namespace {

Problem problem_of(std::string_view op, std::string_view keys) {
  Problem p = parse_problem(*find_op_in_any_domain(op), keys);
  p.device = DeviceKind::kCuda;
  return p;
}

// Register r of a lane's left operand, element e: as rows.cu takes it from the packed words of a step.
double left(const std::vector<uint8_t>& packed, const cuda::RowsShape& s, int64_t tile, int64_t step, int half, int j,
            int lane, int r, int e) {
  const int64_t words = s.bits / 4;
  const uint8_t* const at = packed.data() + ((tile * s.steps() + step) * words * 32 + lane) * 16;
  if (s.bits == 32) return load_f64(s.w, at + ((half * 2 + j) * 2 + r / 2) * 512, r % 2 * 2 + e);
  if (s.bits == 16) return load_f64(s.w, at + (half * 2 + j) * 512, r * 2 + e);
  const uint8_t* const word = at + (s.bits == 8 ? half * 512 + (j * 2 + r / 2) * 4 : (half * 2 + j) * 4);
  const uint32_t v = uint32_t(word[0]) | uint32_t(word[1]) << 8 | uint32_t(word[2]) << 16 | uint32_t(word[3]) << 24;
  if (s.bits == 8) return double(int8_t(v >> (8 * (r % 2) + 16 * e)));
  return double((v >> (4 * r + 16 * e)) & 15) - 8;
}

void check_products(const Problem& p, bool b_is_kn) {
  const cuda::RowsShape s = cuda::rows_shape(p);
  ASSERT_EQ(s.refusal, "");
  Tensor w(p.input(1).dtype, p.input(1).shape());
  std::mt19937 random(3);
  std::vector<double> plain(size_t(s.n * s.k));
  std::vector<uint8_t> levels(size_t(w.bytes()));
  for (int64_t n = 0; n < s.n; ++n) {
    for (int64_t k = 0; k < s.k; ++k) {
      const int level = int(random() % 15) - 7;
      const int64_t at = b_is_kn ? k * s.n + n : n * s.k + k;
      plain[size_t(n * s.k + k)] = level;
      if (s.bits == 4)
        levels[size_t(at / 2)] |= uint8_t((level + 8) << (at % 2 * 4));
      else if (s.bits == 8)
        store_i64(w.dtype(), w.data(), at, level);
      else
        store_f64(w.dtype(), w.data(), at, level);
    }
  }
  if (s.bits == 4) std::copy(levels.begin(), levels.end(), w.as<uint8_t>());
  std::vector<uint8_t> packed(static_cast<size_t>(s.weight_bytes()));
  cuda::pack_rows(s, w, packed.data());
  std::vector<double> x(size_t(s.steps() * 64), 0.0);
  for (int64_t k = 0; k < s.k; ++k) x[size_t(k)] = int(random() % 9) - 4;
  for (int64_t tile = 0; tile < s.tiles(); ++tile) {
    double sum[16] = {};
    for (int64_t step = 0; step < s.steps(); ++step)
      for (int half = 0; half < 2; ++half)
        for (int j = 0; j < 2; ++j) {
          double a[16][16], b[16];
          for (int lane = 0; lane < 32; ++lane) {
            const int g = lane / 4, t = lane % 4;
            for (int r = 0; r < 4; ++r)
              for (int e = 0; e < 2; ++e)
                a[g + 8 * (r % 2)][2 * t + e + 8 * (r / 2)] = left(packed, s, tile, step, half, j, lane, r, e);
            for (int r = 0; r < 2; ++r)
              for (int e = 0; e < 2; ++e)
                b[2 * t + e + 8 * r] = x[size_t(step * 64 + half * 32 + 8 * t + 4 * j + 2 * r + e)];
          }
          for (int row = 0; row < 16; ++row)
            for (int k = 0; k < 16; ++k) sum[row] += a[row][k] * b[k];
        }
    for (int row = 0; row < 16 && tile * 16 + row < s.n; ++row) {
      double want = 0;
      for (int64_t k = 0; k < s.k; ++k) want += plain[size_t((tile * 16 + row) * s.k + k)] * x[size_t(k)];
      ASSERT_EQ(sum[row], want) << p.text() << " row " << tile * 16 + row;
    }
  }
}

TEST(cuda_rows, PackedWeightsAreTheInstructionsOperands) {
  check_products(problem_of("MatMul", "a=bf16[1,100] b=bf16[100,37]!"), true);
  check_products(problem_of("MatMul", "a=f32[1,70] b=f32[70,20]!"), true);
  check_products(problem_of("Gemm", "a=f16[4,96] b=f16[50,96]! transB=1"), false);
  check_products(problem_of("LowBitMatMul", "a=bf16[2,96] q=i8[35,96]! scale=f32[35,1]!"), false);
  check_products(problem_of("LowBitMatMul", "a=f16[1,224] q=u8[20,112]! scale=f16[20,7]! bits=4"), false);
  check_products(problem_of("LowBitMatMul", "a=f32[1,30] q=f16[5,30]! bits=16"), false);
}

TEST(cuda_rows, ScalesOfRowsEightApartLieSideBySide) {
  const Problem p = problem_of("LowBitMatMul", "a=f32[1,128] q=i8[21,128]! scale=f32[21,4]!");
  const cuda::RowsShape s = cuda::rows_shape(p);
  Tensor scale(DType::kF32, {21, 4});
  for (int64_t i = 0; i < scale.elements(); ++i) store_f64(DType::kF32, scale.data(), i, double(i + 1));
  std::vector<float> packed(static_cast<size_t>(cuda::row_scale_bytes(s, p.input(2)) / 4));
  ASSERT_EQ(packed.size(), 2u * 16 * 4);
  cuda::pack_row_scales(s, scale, packed.data());
  for (int64_t n = 0; n < 32; ++n)
    for (int64_t group = 0; group < 4; ++group)
      EXPECT_EQ(packed[size_t(((n / 16 * 4 + group) * 8 + n % 8) * 2 + n / 8 % 2)],
                n < 21 ? float(n * 4 + group + 1) : 0.0f);
}

TEST(cuda_rows, RefusesWhatTheInstructionCannotBeFed) {
  EXPECT_NE(cuda::rows_shape(problem_of("MatMul", "a=bf16[1,64] b=bf16[64,8]")).refusal, "");
  EXPECT_NE(cuda::rows_shape(problem_of("MatMul", "a=f64[1,64] b=f64[64,8]!")).refusal, "");
  EXPECT_NE(cuda::rows_shape(problem_of("LowBitMatMul", "a=f32[1,96] q=i8[8,96]! scale=f32[8,6]!")).refusal, "");
  EXPECT_NE(cuda::rows_shape(problem_of("LowBitMatMul", "a=f32[1,64] q=i8[8,64]! scale=f32[8,1]! act=i8")).refusal, "");
  EXPECT_EQ(cuda::rows_shape(problem_of("MatMul", "a=bf16[2,3,64] b=bf16[64,8]!")).m, 6);
}

// The kernel and the tile that measured fastest (src/kernels/cuda/matvec/blocking.cpp) are the ones that are taken.
TEST(cuda_rows, EstimatesOrderAsMeasured) {
  const auto chosen = [](std::string_view keys) {
    const Choice choice = choose_kernel(problem_of("LowBitMatMul", keys), unmeasured_cuda_ceilings());
    return std::pair(std::string(choice.winner().kernel->name), choice.winner().tile);
  };
  using Expected = std::pair<std::string, Tile>;
  EXPECT_EQ(chosen("a=bf16[1,4096] q=i8[4096,4096]! scale=f32[4096,1]!"),
            Expected("cuda.matvec_low_bulk", Tile{{1, 8, 4, 2}}));
  EXPECT_EQ(chosen("a=bf16[1,4096] q=i8[11008,4096]! scale=f32[11008,1]!"),
            Expected("cuda.matvec_low_bulk", Tile{{1, 16, 2, 1}}));
  EXPECT_EQ(chosen("a=bf16[1,4096] q=u8[4096,2048]! scale=f16[4096,32]! bits=4"),
            Expected("cuda.matvec_low_bulk", Tile{{1, 8, 2, 2}}));
  EXPECT_EQ(chosen("a=bf16[1,4096] q=u8[11008,2048]! scale=f16[11008,32]! bits=4"),
            Expected("cuda.matvec_low", Tile{{1, 16, 4}}));
  EXPECT_EQ(chosen("a=bf16[32,4096] q=i8[4096,4096]! scale=f32[4096,1]!"),
            Expected("cuda.matmul_low", Tile{{1, 8, 2, 4, 4}}));
  EXPECT_EQ(chosen("a=f32[3,64] q=i8[33,64]! scale=f32[33,1]! act=i8"), Expected("cuda.low_plain", Tile{}));
}

}  // namespace
}  // namespace ridgeline
