// AMX below AMX: a limit (RIDGELINE_ISA) keeps every way to its tiles closed, on a processor that has them.
#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/cpu/features.h"
#include "kernels/cpu/matmul/dot/dot_pieces.h"
#include "kernels/cpu/matmul/low/low_amx.h"
#include "kernels/cpu/matmul/low/low_weights.h"
#include "kernels/cpu/simd.h"
#include "verify/check.h"

namespace ridgeline::cpu {
namespace {

constexpr DotPieceType kTypes[] = {DotPieceType::kU8S8, DotPieceType::kS8U8, DotPieceType::kBf16};

/// As this one, and with AMX: what decides may be asked about it anywhere.
Cpu with_amx() {
  Cpu cpu = this_cpu();
  for (const char* feature : {"avx512_vnni", "amx_tile", "amx_int8", "amx_bf16"})
    if (!cpu.has(feature)) cpu.isa.push_back(feature);
  return cpu;
}

class AmxRefusal : public testing::Test {
 protected:
  void TearDown() override {
    unsetenv("RIDGELINE_ISA");
    limit_isa("native");
  }
};

TEST_F(AmxRefusal, WhereNothingLimitsItIsTaken) {
  limit_isa("native");
  EXPECT_TRUE(allows(with_amx(), "amx_int8"));
  EXPECT_TRUE(allows(with_amx(), "amx_bf16"));
  if (active_isa() != Isa::kAvx512) return;  // the tiles' own code wants it beside them
  for (const DotPieceType type : kTypes) EXPECT_TRUE(dot_piece_kernel(type, with_amx()));
}

TEST_F(AmxRefusal, EveryLevelBelowClosesTheTiles) {
  LowShape shape;  // that AMX would take
  shape.quantize = true;
  shape.m = 512, shape.n = 512, shape.k = 512, shape.chunk = 128, shape.chunks = 4;
  for (const char* level : {"vnni", "avx512", "avx2", "scalar"}) {
    limit_isa(level);
    for (const char* feature : {"amx_tile", "amx_int8", "amx_bf16"}) EXPECT_FALSE(allows(with_amx(), feature)) << level;
    for (const DotPieceType type : kTypes) EXPECT_FALSE(dot_piece_kernel(type, with_amx())) << level;
    EXPECT_FALSE(low_amx_suits(shape)) << level;
  }
}

TEST_F(AmxRefusal, TheEnvironmentsVnniKeepsDotProductsAndTakesNoTile) {
  setenv("RIDGELINE_ISA", "vnni", 1);
  limit_isa_from_environment();
  EXPECT_TRUE(allows(with_amx(), "avx512_vnni"));
  for (const DotPieceType type : kTypes) EXPECT_FALSE(dot_piece_kernel(type, with_amx()));
  // Problems that a machine with AMX gives to its tiles: other kernels of the level run them, rightly.
  for (const char* line : {"MatMulInteger a=u8[64,256] b=i8[256,96]!", "MatMul a=bf16[64,256] b=bf16[256,96]!",
                           "LowBitMatMul a=f32[64,256] q=i8[96,256]! scale=f32[96,1]! act=i8 act_block=0"}) {
    CheckOptions options;
    options.isa = "vnni";
    const CheckResult result = check_line(line, options);
    EXPECT_EQ(result.failed, 0) << line;
    EXPECT_EQ(result.reference_only, 0) << line;
  }
}

}  // namespace
}  // namespace ridgeline::cpu
