// LowBitMatMul's tiles with quantized activations on x86: levels of weights are unsigned, those of activations signed,
// their sums over a chunk exact in i32; each chunk's sum is scaled into f32. Sums start at -offset times the chunk's
// sum of activations, so that the offset costs nothing.
#include "kernels/cpu/matmul/low/low_tiles.h"

#include "kernels/cpu/matmul/low/low_plain.h"
#include "kernels/cpu/simd.h"
#include "machine/probe.h"

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 sees it in its own _mm512 intrinsics (its bug 105593)
#include <immintrin.h>

namespace ridgeline::cpu {
namespace {

constexpr int kColumns = 32;
constexpr int64_t kStepBytes = kColumns * 4;

#define RIDGELINE_AVX2 __attribute__((target("avx2,fma")))

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
void avx2(const LowDotTile& t, int rows) {
  static constexpr Tiles kTable[] = {any_avx2<1>, any_avx2<1>, any_avx2<2>, any_avx2<3>, any_avx2<4>};
  kTable[rows](t);
}

}  // namespace

LowDotKernels low_dot_kernels() {
  if (active_isa() == Isa::kScalar) return low_plain_kernels();
  const bool wide = active_isa() == Isa::kAvx512;
  if (wide && has_feature("avx512_vnni")) return {kLowFewRows, true, nullptr};
  return {4, false, avx2};
}

}  // namespace ridgeline::cpu

#else

namespace ridgeline::cpu {
LowDotKernels low_dot_kernels() { return low_plain_kernels(); }
}  // namespace ridgeline::cpu
#endif
