// LowBitMatMul's tiles with quantized activations on x86: levels of weights are unsigned, those of activations signed,
// their sums over a chunk exact in i32; each chunk's sum is scaled into f32. Sums start at -offset times the chunk's
// sum of activations, so that the offset costs nothing.
#include "kernels/cpu/matmul/low/low_tiles.h"
#include "kernels/cpu/simd.h"
#include "machine/probe.h"

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 sees it in its own _mm512 intrinsics (its bug 105593)
#include <immintrin.h>

namespace ridgeline::cpu {
namespace {

constexpr int kColumns = 32;
constexpr int64_t kStepBytes = kColumns * 4;
constexpr int kAhead = 2048;

#define RIDGELINE_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define RIDGELINE_AVX2 __attribute__((target("avx2,fma")))

RIDGELINE_VNNI inline __m512i four(const int8_t* a) {
  int32_t bits;
  __builtin_memcpy(&bits, a, 4);
  return _mm512_set1_epi32(bits);
}

// MR rows by kHalves times 16 columns: that many sums in i32 and in f32. Few rows take the panel's 32 columns at once,
// so that it is one stream: in two passes, 8 bits came from DRAM at 61 % of its bandwidth. kOneScale: a row's scale is
// applied once, at the end.
template <int MR, int kHalves, int kBits, bool kLow, bool kOneScale>
RIDGELINE_VNNI void tile_vnni(const LowDotTile& t) {
  const __m512i mask = _mm512_set1_epi8(15);
  for (int half = 0; half < 2; half += kHalves) {
    const uint8_t* w = t.w + half * 64;
    const int8_t* a = t.a;
    __m512 total[MR][kHalves];
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) total[r][h] = _mm512_setzero_ps();
    }
    for (int64_t chunk = 0; chunk < t.chunks; ++chunk) {
      __m512i acc[MR][kHalves];
#pragma GCC unroll 16
      for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) acc[r][h] = _mm512_set1_epi32(t.start[r * t.chunk_pitch + chunk]);
      }
      constexpr int kSteps = kBits == 8 ? 4 : 8;
#pragma GCC unroll 2
      for (int64_t k = 0; k < t.chunk; k += kSteps, w += kStepBytes, a += kSteps) {
#pragma GCC unroll 2
        for (int h = 0; h < kHalves; ++h) {
          const __m512i x = _mm512_loadu_si512(w + h * 64);
          if (kHalves == 2) _mm_prefetch(reinterpret_cast<const char*>(w + h * 64 + kAhead), _MM_HINT_T0);
          if constexpr (kBits == 8) {
#pragma GCC unroll 16
            for (int r = 0; r < MR; ++r) acc[r][h] = _mm512_dpbusd_epi32(acc[r][h], x, four(a + r * t.a_pitch));
          } else {
            const __m512i low = _mm512_and_si512(x, mask), high = _mm512_and_si512(_mm512_srli_epi16(x, 4), mask);
#pragma GCC unroll 16
            for (int r = 0; r < MR; ++r) acc[r][h] = _mm512_dpbusd_epi32(acc[r][h], low, four(a + r * t.a_pitch));
#pragma GCC unroll 16
            for (int r = 0; r < MR; ++r) acc[r][h] = _mm512_dpbusd_epi32(acc[r][h], high, four(a + r * t.a_pitch + 4));
          }
        }
      }
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        const int64_t column = chunk * kColumns + (half + h) * 16;
        const __m512 scale = _mm512_loadu_ps(t.scales.scale + column);
#pragma GCC unroll 16
        for (int r = 0; r < MR; ++r) {
          const __m512 by =
              kOneScale ? scale : _mm512_mul_ps(scale, _mm512_set1_ps(t.scale[r * t.chunk_pitch + chunk]));
          total[r][h] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][h]), by, total[r][h]);
        }
        if constexpr (kLow) {
          const __m512 low = _mm512_loadu_ps(t.scales.low + column);
#pragma GCC unroll 16
          for (int r = 0; r < MR; ++r)
            total[r][h] = _mm512_fnmadd_ps(low, _mm512_set1_ps(t.weighted[r * t.chunk_pitch + chunk]), total[r][h]);
        }
      }
    }
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 2
      for (int h = 0; h < kHalves; ++h) {
        const __m512 y =
            kOneScale ? _mm512_mul_ps(total[r][h], _mm512_set1_ps(t.scale[r * t.chunk_pitch])) : total[r][h];
        _mm512_storeu_ps(t.sums + r * kColumns + (half + h) * 16, y);
      }
    }
  }
}

template <int MR>
RIDGELINE_VNNI void any_vnni(const LowDotTile& t) {
  constexpr int kHalves = 2;
  if (t.bits == 8) {
    if (t.scales.low) return tile_vnni<MR, kHalves, 8, true, false>(t);
    return t.one_scale ? tile_vnni<MR, kHalves, 8, false, true>(t) : tile_vnni<MR, kHalves, 8, false, false>(t);
  }
  if (t.scales.low) return tile_vnni<MR, kHalves, 4, true, false>(t);
  return t.one_scale ? tile_vnni<MR, kHalves, 4, false, true>(t) : tile_vnni<MR, kHalves, 4, false, false>(t);
}

// Without VNNI: u8 x s8 into i16 saturates above 7 bits, so levels of 8 bits are cut into seven and one.
template <int MR, int kBits>
RIDGELINE_AVX2 void tile_avx2(const LowDotTile& t) {
  const __m256i ones = _mm256_set1_epi16(1), top_weight = _mm256_set1_epi16(128), seven = _mm256_set1_epi8(127),
                one = _mm256_set1_epi8(1), mask = _mm256_set1_epi8(15);
  for (int part = 0; part < 4; ++part) {
    const uint8_t* w = t.w + part * 32;
    const int8_t* a = t.a;
    __m256 total[MR];
#pragma GCC unroll 4
    for (int r = 0; r < MR; ++r) total[r] = _mm256_setzero_ps();
    for (int64_t chunk = 0; chunk < t.chunks; ++chunk) {
      __m256i acc[MR];
#pragma GCC unroll 4
      for (int r = 0; r < MR; ++r) acc[r] = _mm256_set1_epi32(t.start[r * t.chunk_pitch + chunk]);
      for (int64_t k = 0; k < t.chunk; k += kBits == 8 ? 4 : 8, w += kStepBytes, a += kBits == 8 ? 4 : 8) {
        const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
        const __m256i low = _mm256_and_si256(both, kBits == 8 ? seven : mask);
        const __m256i high = kBits == 8 ? _mm256_and_si256(_mm256_srli_epi16(both, 7), one)
                                        : _mm256_and_si256(_mm256_srli_epi16(both, 4), mask);
#pragma GCC unroll 4
        for (int r = 0; r < MR; ++r) {
          int32_t first, second;
          __builtin_memcpy(&first, a + r * t.a_pitch, 4);
          __builtin_memcpy(&second, a + r * t.a_pitch + (kBits == 8 ? 0 : 4), 4);
          acc[r] =
              _mm256_add_epi32(acc[r], _mm256_madd_epi16(_mm256_maddubs_epi16(low, _mm256_set1_epi32(first)), ones));
          acc[r] = _mm256_add_epi32(acc[r], _mm256_madd_epi16(_mm256_maddubs_epi16(high, _mm256_set1_epi32(second)),
                                                              kBits == 8 ? top_weight : ones));
        }
      }
      const __m256 scale = _mm256_loadu_ps(t.scales.scale + chunk * kColumns + part * 8);
#pragma GCC unroll 4
      for (int r = 0; r < MR; ++r) {
        const __m256 by = _mm256_mul_ps(scale, _mm256_set1_ps(t.scale[r * t.chunk_pitch + chunk]));
        total[r] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(acc[r]), by, total[r]);
        if (t.scales.low)
          total[r] = _mm256_fnmadd_ps(_mm256_loadu_ps(t.scales.low + chunk * kColumns + part * 8),
                                      _mm256_set1_ps(t.weighted[r * t.chunk_pitch + chunk]), total[r]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < MR; ++r) _mm256_storeu_ps(t.sums + r * kColumns + part * 8, total[r]);
  }
}

template <int MR>
void any_avx2(const LowDotTile& t) {
  t.bits == 8 ? tile_avx2<MR, 8>(t) : tile_avx2<MR, 4>(t);
}

using Tiles = void (*)(const LowDotTile&);
void vnni(const LowDotTile& t, int rows) {
  static constexpr Tiles kTable[] = {any_vnni<1>, any_vnni<1>, any_vnni<2>, any_vnni<3>, any_vnni<4>, any_vnni<5>};
  kTable[rows](t);
}
void avx2(const LowDotTile& t, int rows) {
  static constexpr Tiles kTable[] = {any_avx2<1>, any_avx2<1>, any_avx2<2>, any_avx2<3>, any_avx2<4>};
  kTable[rows](t);
}

}  // namespace

LowDotKernels low_dot_kernels() {
  if (active_isa() == Isa::kScalar) return {};
  const bool wide = active_isa() == Isa::kAvx512;
  if (wide && has_feature("avx512_vnni")) return {5, vnni};
  return {4, avx2};
}

}  // namespace ridgeline::cpu

#else

namespace ridgeline::cpu {
LowDotKernels low_dot_kernels() { return {}; }
}  // namespace ridgeline::cpu
#endif
