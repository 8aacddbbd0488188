// The dot-product instructions that the portable vector layer lacks: VNNI, AVX512-BF16, AMX. Each function is compiled
// for its own instruction set and runs only where the CPU has it (ComputeWay::feature).
#include "tune/probes_kernels.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>
#include <utility>

namespace ridgeline::probe {
namespace {

constexpr int64_t kTurns = 8192;

// Twelve chains of one instruction: the dot products have four to five cycles' latency on one or two units. The chains
// are variables, each in its register: as an array, or with its address taken, GCC 12 stored all of them in every turn,
// and VNNI's peak was measured at 260 Gop/s where a kernel reached 540.
#define RIDGELINE_TWELVE_CHAINS(instruction, vector, zero)                                                             \
  vector c0 = zero, c1 = zero, c2 = zero, c3 = zero, c4 = zero, c5 = zero, c6 = zero, c7 = zero, c8 = zero, c9 = zero, \
         c10 = zero, c11 = zero;                                                                                       \
  for (int64_t turn = 0; turn < kTurns; ++turn) {                                                                      \
    asm volatile(instruction " %[y], %[x], %[a0]\n\t" instruction " %[y], %[x], %[a1]\n\t" instruction                 \
                             " %[y], %[x], %[a2]\n\t" instruction " %[y], %[x], %[a3]\n\t" instruction                 \
                             " %[y], %[x], %[a4]\n\t" instruction " %[y], %[x], %[a5]\n\t" instruction                 \
                             " %[y], %[x], %[a6]\n\t" instruction " %[y], %[x], %[a7]\n\t" instruction                 \
                             " %[y], %[x], %[a8]\n\t" instruction " %[y], %[x], %[a9]\n\t" instruction                 \
                             " %[y], %[x], %[a10]\n\t" instruction " %[y], %[x], %[a11]"                               \
                 : [a0] "+v"(c0), [a1] "+v"(c1), [a2] "+v"(c2), [a3] "+v"(c3), [a4] "+v"(c4), [a5] "+v"(c5),           \
                   [a6] "+v"(c6), [a7] "+v"(c7), [a8] "+v"(c8), [a9] "+v"(c9), [a10] "+v"(c10), [a11] "+v"(c11)        \
                 : [x] "v"(x), [y] "v"(y));                                                                            \
  }                                                                                                                    \
  const vector all = c0 ^ c1 ^ c2 ^ c3 ^ c4 ^ c5 ^ c6 ^ c7 ^ c8 ^ c9 ^ c10 ^ c11;                                      \
  use(all)

__attribute__((target("avx512f"))) int64_t bf16_dot() {
  const __m512i x = _mm512_set1_epi32(0x3f803f80), y = _mm512_set1_epi32(0x3a833a83);  // 1 and 0.001 in bf16
  RIDGELINE_TWELVE_CHAINS("vdpbf16ps", __m512i, _mm512_setzero_si512());
  return kTurns * 12 * 64;  // 16 lanes, two products and two sums in each
}

__attribute__((target("avx512f"))) int64_t u8s8_dot_512() {
  const __m512i x = _mm512_set1_epi8(37), y = _mm512_set1_epi8(-5);
  RIDGELINE_TWELVE_CHAINS("vpdpbusd", __m512i, _mm512_setzero_si512());
  return kTurns * 12 * 128;
}

__attribute__((target("avx2"))) int64_t u8s8_dot_256() {
  const __m256i x = _mm256_set1_epi8(37), y = _mm256_set1_epi8(-5);
  RIDGELINE_TWELVE_CHAINS("%{vex%} vpdpbusd", __m256i, _mm256_setzero_si256());
  return kTurns * 12 * 64;
}

#undef RIDGELINE_TWELVE_CHAINS

// Without VNNI: multiply u8 by s8 into pairs of s16, pairs of those into s32, add. Three instructions for 32 products.
__attribute__((target("avx2"))) int64_t u8s8_avx2() {
  __m256i x = _mm256_set1_epi8(37), y = _mm256_set1_epi8(-5), ones = _mm256_set1_epi16(1);
  __m256i c[8];
  for (__m256i& chain : c) chain = _mm256_setzero_si256();
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    for (__m256i& chain : c) {
      asm volatile("" : "+x"(x), "+x"(y));
      chain = _mm256_add_epi32(chain, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones));
    }
  }
  for (const __m256i& chain : c) use(chain);
  return kTurns * 8 * 64;
}

__attribute__((target("avx512bw"))) int64_t u8s8_avx512() {
  __m512i x = _mm512_set1_epi8(37), y = _mm512_set1_epi8(-5), ones = _mm512_set1_epi16(1);
  __m512i c[8];
  for (__m512i& chain : c) chain = _mm512_setzero_si512();
  for (int64_t turn = 0; turn < kTurns; ++turn) {
    for (__m512i& chain : c) {
      asm volatile("" : "+v"(x), "+v"(y));
      chain = _mm512_add_epi32(chain, _mm512_madd_epi16(_mm512_maddubs_epi16(x, y), ones));
    }
  }
  for (const __m512i& chain : c) use(chain);
  return kTurns * 8 * 128;
}

// AMX, Intel's instruction set reference: palette 1, eight tiles of 16 rows by 64 bytes. Six accumulators on two
// operands cover the latency (52 cycles) of an instruction that starts every 16.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

constexpr int64_t kTileTurns = 512;

// The tiles hold ordinary numbers, not zeros, so that the clock under load is the one that real products see.
void load_tiles(const void* x, const void* y) {
  const TileConfig config;
  const int64_t stride = 64;
  asm volatile("ldtilecfg %0" : : "m"(config));
  asm volatile(
      "tilezero %tmm0\n\ttilezero %tmm1\n\ttilezero %tmm2\n\ttilezero %tmm3\n\ttilezero %tmm4\n\ttilezero %tmm5");
  asm volatile("tileloadd (%0,%2,1), %%tmm6\n\ttileloadd (%1,%2,1), %%tmm7" : : "r"(x), "r"(y), "r"(stride) : "memory");
}

void release_tiles() { asm volatile("tilerelease"); }

int64_t bf16_amx() {
  alignas(64) static const auto kOperand = [] {
    std::pair<uint16_t[512], uint16_t[512]> tiles;
    for (int i = 0; i < 512; ++i) {
      tiles.first[i] = uint16_t(0x3f00 + i % 97);   // 0.5 to 0.88
      tiles.second[i] = uint16_t(0xbf00 + i % 89);  // their negatives
    }
    return tiles;
  }();
  load_tiles(kOperand.first, kOperand.second);
  for (int64_t turn = 0; turn < kTileTurns; ++turn) {
    asm volatile(
        "tdpbf16ps %tmm7, %tmm6, %tmm0\n\ttdpbf16ps %tmm7, %tmm6, %tmm1\n\ttdpbf16ps %tmm7, %tmm6, %tmm2\n\t"
        "tdpbf16ps %tmm7, %tmm6, %tmm3\n\ttdpbf16ps %tmm7, %tmm6, %tmm4\n\ttdpbf16ps %tmm7, %tmm6, %tmm5");
  }
  release_tiles();
  return kTileTurns * 6 * (16 * 16 * 32 * 2);
}

int64_t u8s8_amx() {
  alignas(64) static const auto kOperand = [] {
    std::pair<uint8_t[1024], int8_t[1024]> tiles;
    for (int i = 0; i < 1024; ++i) {
      tiles.first[i] = uint8_t(i * 37);
      tiles.second[i] = int8_t(i * 53);
    }
    return tiles;
  }();
  load_tiles(kOperand.first, kOperand.second);
  for (int64_t turn = 0; turn < kTileTurns; ++turn) {
    asm volatile(
        "tdpbusd %tmm7, %tmm6, %tmm0\n\ttdpbusd %tmm7, %tmm6, %tmm1\n\ttdpbusd %tmm7, %tmm6, %tmm2\n\t"
        "tdpbusd %tmm7, %tmm6, %tmm3\n\ttdpbusd %tmm7, %tmm6, %tmm4\n\ttdpbusd %tmm7, %tmm6, %tmm5");
  }
  release_tiles();
  return kTileTurns * 6 * (16 * 16 * 64 * 2);
}

constexpr ComputeWay kBf16Ways[] = {{"AVX512-BF16", "avx512_bf16", bf16_dot}, {"AMX", "amx_bf16", bf16_amx}};
constexpr ComputeWay kU8s8Ways[] = {
    {"AVX2", "avx2", u8s8_avx2},          {"AVX-VNNI", "avx_vnni", u8s8_dot_256},
    {"AVX-512", "avx512bw", u8s8_avx512}, {"AVX512-VNNI", "avx512_vnni", u8s8_dot_512},
    {"AMX", "amx_int8", u8s8_amx},
};

}  // namespace

std::span<const ComputeWay> bf16_ways() { return kBf16Ways; }
std::span<const ComputeWay> u8s8_ways() { return kU8s8Ways; }

}  // namespace ridgeline::probe

#else

namespace ridgeline::probe {

std::span<const ComputeWay> bf16_ways() { return {}; }
std::span<const ComputeWay> u8s8_ways() { return {}; }

}  // namespace ridgeline::probe

#endif
