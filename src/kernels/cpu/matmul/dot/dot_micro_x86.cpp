// The tiles on x86: AVX2, AVX-VNNI, AVX-512 with VNNI or BF16. Each function is compiled for its own instruction
// set and is reached only where the CPU has it. Source of the instructions: Intel 64 and IA-32 manual, volume 2.
#include "kernels/cpu/matmul/dot/dot_micro.h"
#include "kernels/cpu/matmul/dot/dot_plain.h"
#include "kernels/cpu/simd.h"
#include "machine/probe.h"

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 sees it in its own _mm512 intrinsics (its bug 105593)
#include <immintrin.h>

namespace ridgeline::cpu {
namespace {

constexpr int kStepBytes = kDotColumns * 4;

// ---- AVX-512

#define RIDGELINE_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define RIDGELINE_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

// 14 rows x 2 vectors: 28 sums, two of B, one of A in 32 registers.
template <int MR>
RIDGELINE_VNNI void tile_vnni(const DotRows& from, const uint8_t* b, void* sums) {
  __m512i acc[MR][2];
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_si512();
  for (int64_t t = 0; t < from.taps; ++t) {
    const uint8_t* a = from.data + from.offsets[t];
    for (int64_t step = 0; step < from.blocks * 16; ++step, b += kStepBytes) {
      const __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 64);
#pragma GCC unroll 16
      for (int r = 0; r < MR; ++r) {
        int32_t four;
        __builtin_memcpy(&four, a + r * from.pitch + step * 4, 4);
        const __m512i x = _mm512_set1_epi32(four);
        acc[r][0] = _mm512_dpbusd_epi32(acc[r][0], x, b0);
        acc[r][1] = _mm512_dpbusd_epi32(acc[r][1], x, b1);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
    _mm512_storeu_si512(static_cast<char*>(sums) + r * kStepBytes, acc[r][0]);
    _mm512_storeu_si512(static_cast<char*>(sums) + r * kStepBytes + 64, acc[r][1]);
  }
}

template <int MR>
RIDGELINE_BF16 void tile_bf16(const DotRows& from, const uint8_t* b, void* sums) {
  __m512 acc[MR][2];
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_ps();
  for (int64_t t = 0; t < from.taps; ++t) {
    const uint8_t* a = from.data + from.offsets[t];
    for (int64_t step = 0; step < from.blocks * 16; ++step, b += kStepBytes) {
      const __m512bh b0 = (__m512bh)_mm512_loadu_si512(b), b1 = (__m512bh)_mm512_loadu_si512(b + 64);
#pragma GCC unroll 16
      for (int r = 0; r < MR; ++r) {
        int32_t two;
        __builtin_memcpy(&two, a + r * from.pitch + step * 4, 4);
        const __m512bh x = (__m512bh)_mm512_set1_epi32(two);
        acc[r][0] = _mm512_dpbf16_ps(acc[r][0], x, b0);
        acc[r][1] = _mm512_dpbf16_ps(acc[r][1], x, b1);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
    _mm512_storeu_ps(static_cast<float*>(sums) + r * kDotColumns, acc[r][0]);
    _mm512_storeu_ps(static_cast<float*>(sums) + r * kDotColumns + 16, acc[r][1]);
  }
}

// ---- AVX2

#define RIDGELINE_AVX2 __attribute__((target("avx2,fma")))

// u8 x s8 into i16 saturates above 7 bits, so A is cut into its low seven bits and its top one; exact on every value.
template <int MR>
RIDGELINE_AVX2 void tile_maddubs(const DotRows& from, const uint8_t* b, void* sums) {
  const __m256i ones = _mm256_set1_epi16(1), high_weight = _mm256_set1_epi16(128), low_bits = _mm256_set1_epi8(0x7f);
  for (int part = 0; part < 4; ++part) {  // 8 columns at a time
    const uint8_t* at = b + part * 32;
    __m256i acc[MR];
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r) acc[r] = _mm256_setzero_si256();
    for (int64_t t = 0; t < from.taps; ++t) {
      const uint8_t* a = from.data + from.offsets[t];
      for (int64_t step = 0; step < from.blocks * 16; ++step, at += kStepBytes) {
        const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
#pragma GCC unroll 8
        for (int r = 0; r < MR; ++r) {
          int32_t four;
          __builtin_memcpy(&four, a + r * from.pitch + step * 4, 4);
          const __m256i x = _mm256_set1_epi32(four);
          const __m256i low = _mm256_and_si256(x, low_bits);
          const __m256i high = _mm256_and_si256(_mm256_srli_epi16(x, 7), _mm256_set1_epi8(1));
          acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(_mm256_maddubs_epi16(low, w), ones));
          acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(_mm256_maddubs_epi16(high, w), high_weight));
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(static_cast<char*>(sums) + r * kStepBytes + part * 32), acc[r]);
  }
}

// bf16 is the upper half of f32: the pair's first number is shifted up, the second masked; two FMAs a group.
template <int MR>
RIDGELINE_AVX2 void tile_bf16_fma(const DotRows& from, const uint8_t* b, void* sums) {
  const __m256i upper = _mm256_set1_epi32(int(0xffff0000));
  for (int part = 0; part < 4; ++part) {
    const uint8_t* at = b + part * 32;
    __m256 acc[MR];
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r) acc[r] = _mm256_setzero_ps();
    for (int64_t t = 0; t < from.taps; ++t) {
      const uint8_t* a = from.data + from.offsets[t];
      for (int64_t step = 0; step < from.blocks * 16; ++step, at += kStepBytes) {
        const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
        const __m256 w0 = _mm256_castsi256_ps(_mm256_slli_epi32(w, 16)),
                     w1 = _mm256_castsi256_ps(_mm256_and_si256(w, upper));
#pragma GCC unroll 8
        for (int r = 0; r < MR; ++r) {
          uint32_t two;
          __builtin_memcpy(&two, a + r * from.pitch + step * 4, 4);
          acc[r] = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_set1_epi32(int(two << 16))), w0, acc[r]);
          acc[r] = _mm256_fmadd_ps(_mm256_castsi256_ps(_mm256_set1_epi32(int(two & 0xffff0000u))), w1, acc[r]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r) _mm256_storeu_ps(static_cast<float*>(sums) + r * kDotColumns + part * 8, acc[r]);
  }
}

// ---- one entry for all numbers of rows

using Rows = void (*)(const DotRows&, const uint8_t*, void*);

template <Rows (*kOf)(int)>
void any_rows(const DotRows& a, const uint8_t* panel, int rows, void* sums) {
  kOf(rows)(a, panel, sums);
}

Rows vnni_of(int rows) {
  static constexpr Rows kTable[] = {tile_vnni<1>,  tile_vnni<1>,  tile_vnni<2>,  tile_vnni<3>,  tile_vnni<4>,
                                    tile_vnni<5>,  tile_vnni<6>,  tile_vnni<7>,  tile_vnni<8>,  tile_vnni<9>,
                                    tile_vnni<10>, tile_vnni<11>, tile_vnni<12>, tile_vnni<13>, tile_vnni<14>};
  return kTable[rows];
}
Rows bf16_of(int rows) {
  static constexpr Rows kTable[] = {tile_bf16<1>,  tile_bf16<1>,  tile_bf16<2>,  tile_bf16<3>,  tile_bf16<4>,
                                    tile_bf16<5>,  tile_bf16<6>,  tile_bf16<7>,  tile_bf16<8>,  tile_bf16<9>,
                                    tile_bf16<10>, tile_bf16<11>, tile_bf16<12>, tile_bf16<13>, tile_bf16<14>};
  return kTable[rows];
}
Rows maddubs_of(int rows) {
  static constexpr Rows kTable[] = {tile_maddubs<1>, tile_maddubs<1>, tile_maddubs<2>, tile_maddubs<3>,
                                    tile_maddubs<4>, tile_maddubs<5>, tile_maddubs<6>};
  return kTable[rows];
}
Rows bf16_fma_of(int rows) {
  static constexpr Rows kTable[] = {tile_bf16_fma<1>, tile_bf16_fma<1>, tile_bf16_fma<2>, tile_bf16_fma<3>,
                                    tile_bf16_fma<4>, tile_bf16_fma<5>, tile_bf16_fma<6>};
  return kTable[rows];
}

constexpr DotKernels kVnni{"avx512_vnni", 14, any_rows<vnni_of>};
constexpr DotKernels kBf16{"avx512_bf16", 14, any_rows<bf16_of>};
constexpr DotKernels kMaddubs{"avx2", 6, any_rows<maddubs_of>};
constexpr DotKernels kBf16Fma{"avx2", 6, any_rows<bf16_fma_of>};

}  // namespace

const DotKernels& dot_kernels(DotType type) {
  if (active_isa() == Isa::kScalar) return dot_plain_kernels(type);
  const bool wide = active_isa() == Isa::kAvx512;
  if (type == DotType::kU8S8) return wide && has_feature("avx512_vnni") ? kVnni : kMaddubs;
  return wide && has_feature("avx512_bf16") ? kBf16 : kBf16Fma;
}

}  // namespace ridgeline::cpu

#else

namespace ridgeline::cpu {
const DotKernels& dot_kernels(DotType type) { return dot_plain_kernels(type); }
}  // namespace ridgeline::cpu
#endif
