// LowBitMatMul on VNNI for a few rows, which wait for DRAM alone: two panels side by side are two streams, and scales
// are converted where they are used. One thread of a Xeon, rows of 4096, of 16.0 GB/s that two streams of loads alone
// had: groups of 32 15.6 (one panel at a time 14.3), q8_0 15.1 (14.5), 8 bits 15.5 (14.6), all with the fetch 1 KiB
// ahead into the first cache; a further one into the second, 4 or 8 KiB ahead, gave nothing or lost a tenth. Scales
// converted for a whole panel took a tenth more, during which DRAM was idle, and the burst that fetched them as much.
#include "kernels/cpu/matmul/low/low_tiles.h"
#include "kernels/cpu/simd.h"

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 sees it in its own _mm512 intrinsics (its bug 105593)
#include <immintrin.h>

namespace ridgeline::cpu {
namespace {

#define RIDGELINE_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))
#define RIDGELINE_INLINE inline __attribute__((always_inline))

constexpr int kColumns = 32;
constexpr int64_t kStepBytes = kColumns * 4;
constexpr int kAhead = 1024, kScalesAhead = 512;  // bytes

RIDGELINE_VNNI RIDGELINE_INLINE __m512i four(const int8_t* a) {
  int32_t bits;
  __builtin_memcpy(&bits, a, 4);
  return _mm512_set1_epi32(bits);
}
RIDGELINE_VNNI RIDGELINE_INLINE __m512 halves(const void* p, int64_t at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(static_cast<const uint16_t*>(p) + at)));
}
RIDGELINE_VNNI RIDGELINE_INLINE __m512 bytes(const void* p, int64_t at) {
  const __m128i v = _mm_loadu_si128(reinterpret_cast<const __m128i*>(static_cast<const uint8_t*>(p) + at));
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(v));
}

template <LowScaleForm kForm>
RIDGELINE_VNNI RIDGELINE_INLINE __m512 scale_of(const LowFewTile& t, const LowFewTile::Panel& p, int64_t chunk, int c) {
  const int64_t at = chunk * kColumns + c;
  if constexpr (kForm == LowScaleForm::kF16) return halves(p.scale, at);
  if constexpr (kForm == LowScaleForm::kSuper)
    return _mm512_mul_ps(halves(p.super_scale, chunk / t.within * kColumns + c), bytes(p.scale, at));
  return _mm512_loadu_ps(static_cast<const float*>(p.scale) + at);
}
template <LowScaleForm kForm>
RIDGELINE_VNNI RIDGELINE_INLINE __m512 low_of(const LowFewTile& t, const LowFewTile::Panel& p, int64_t chunk, int c) {
  const int64_t at = chunk * kColumns + c;
  if constexpr (kForm == LowScaleForm::kSuper)
    return _mm512_mul_ps(halves(p.super_low, chunk / t.within * kColumns + c), bytes(p.low, at));
  return _mm512_loadu_ps(static_cast<const float*>(p.low) + at);
}
template <LowScaleForm kForm>
RIDGELINE_VNNI RIDGELINE_INLINE void fetch_scales(const LowFewTile::Panel& p, int64_t chunk) {
  constexpr int64_t kEach = kForm == LowScaleForm::kSuper ? 1 : kForm == LowScaleForm::kF16 ? 2 : 4;
  const int64_t at = chunk * kColumns * kEach + kScalesAhead;
  __builtin_prefetch(static_cast<const char*>(p.scale) + at);
  if constexpr (kEach == 4) __builtin_prefetch(static_cast<const char*>(p.scale) + at + 64);
  if constexpr (kForm == LowScaleForm::kSuper) __builtin_prefetch(static_cast<const char*>(p.low) + at);
}

// kPanels times 32 columns: 2 * kPanels vectors a row, in i32 and in f32.
template <int MR, int kPanels, int kBits, LowScaleForm kForm, bool kOneScale>
RIDGELINE_VNNI void few(const LowFewTile& t) {
  constexpr int kVectors = 2 * kPanels;
  constexpr bool kLow = kForm == LowScaleForm::kF32Low || kForm == LowScaleForm::kSuper;
  const __m512i mask = _mm512_set1_epi8(15);
  const uint8_t *w0 = t.panels[0].w, *w1 = t.panels[1].w;
  const int8_t* a = t.a;
  __m512 total[MR][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) total[r][v] = _mm512_setzero_ps();
  }
  for (int64_t chunk = 0; chunk < t.chunks; ++chunk) {
    __m512i acc[MR][kVectors];
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r) {
      const __m512i start = _mm512_set1_epi32(t.start[r * t.chunk_pitch + chunk]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[r][v] = start;
    }
    constexpr int kSteps = kBits == 8 ? 4 : 8;
#pragma GCC unroll 2
    for (int64_t k = 0; k < t.chunk; k += kSteps, w0 += kStepBytes, w1 += kStepBytes, a += kSteps) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const uint8_t* w = (v < 2 ? w0 : w1) + v % 2 * 64;
        const __m512i x = _mm512_loadu_si512(w);
        __builtin_prefetch(w + kAhead);
        if constexpr (kBits == 8) {
#pragma GCC unroll 8
          for (int r = 0; r < MR; ++r) acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], x, four(a + r * t.a_pitch));
        } else {
          const __m512i low = _mm512_and_si512(x, mask), high = _mm512_and_si512(_mm512_srli_epi16(x, 4), mask);
#pragma GCC unroll 8
          for (int r = 0; r < MR; ++r) acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], low, four(a + r * t.a_pitch));
#pragma GCC unroll 8
          for (int r = 0; r < MR; ++r) acc[r][v] = _mm512_dpbusd_epi32(acc[r][v], high, four(a + r * t.a_pitch + 4));
        }
      }
    }
    fetch_scales<kForm>(t.panels[0], chunk);
    if constexpr (kPanels == 2) fetch_scales<kForm>(t.panels[1], chunk);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512 scale = scale_of<kForm>(t, t.panels[v / 2], chunk, v % 2 * 16);
#pragma GCC unroll 8
      for (int r = 0; r < MR; ++r) {
        const __m512 by = kOneScale ? scale : _mm512_mul_ps(scale, _mm512_set1_ps(t.scale[r * t.chunk_pitch + chunk]));
        total[r][v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(acc[r][v]), by, total[r][v]);
      }
      if constexpr (kLow) {
        const __m512 low = low_of<kForm>(t, t.panels[v / 2], chunk, v % 2 * 16);
#pragma GCC unroll 8
        for (int r = 0; r < MR; ++r)
          total[r][v] = _mm512_fnmadd_ps(low, _mm512_set1_ps(t.weighted[r * t.chunk_pitch + chunk]), total[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      const __m512 y = kOneScale ? _mm512_mul_ps(total[r][v], _mm512_set1_ps(t.scale[r * t.chunk_pitch])) : total[r][v];
      _mm512_storeu_ps(t.panels[v / 2].sums + r * kColumns + v % 2 * 16, y);
    }
  }
}

template <int MR, int kBits>
void of_form(const LowFewTile& t) {
  constexpr int kPanels = MR <= kLowFewPairs ? 2 : 1;
  switch (t.form) {
    case LowScaleForm::kF32:
      return t.one_scale ? few<MR, kPanels, kBits, LowScaleForm::kF32, true>(t)
                         : few<MR, kPanels, kBits, LowScaleForm::kF32, false>(t);
    case LowScaleForm::kF16:
      return t.one_scale ? few<MR, kPanels, kBits, LowScaleForm::kF16, true>(t)
                         : few<MR, kPanels, kBits, LowScaleForm::kF16, false>(t);
    case LowScaleForm::kF32Low:
      return few<MR, kPanels, kBits, LowScaleForm::kF32Low, false>(t);
    default:
      return few<MR, kPanels, kBits, LowScaleForm::kSuper, false>(t);
  }
}
template <int MR>
void of_bits(const LowFewTile& t) {
  t.bits == 8 ? of_form<MR, 8>(t) : of_form<MR, 4>(t);
}

}  // namespace

void low_few_tile(const LowFewTile& t, int rows) {
  static constexpr void (*kTable[])(const LowFewTile&) = {of_bits<1>, of_bits<1>, of_bits<2>, of_bits<3>, of_bits<4>,
                                                          of_bits<5>, of_bits<6>, of_bits<7>, of_bits<8>};
  kTable[rows](t);
}

}  // namespace ridgeline::cpu

#else

namespace ridgeline::cpu {
void low_few_tile(const LowFewTile&, int) {}
}  // namespace ridgeline::cpu
#endif
