// The most frequent end of bf16 sums, whole panels of 32 columns to bf16, by the instruction that rounds: 16 operations
// a row instead of 34. It takes subnormal sums for zero, so rows with any are left to the general form.
#include "kernels/cpu/matmul/dot/dot_bf16.h"

#include <limits>

#include "kernels/cpu/matmul/dot/dot_micro.h"
#include "kernels/cpu/simd.h"

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 sees it in its own _mm512 intrinsics (its bug 105593)
#include <immintrin.h>

namespace ridgeline::cpu {
namespace {

#define RIDGELINE_BF16 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

constexpr int kSubnormal = 0x20;  // of vfpclassps

RIDGELINE_BF16 inline __attribute__((always_inline)) __m512 widened(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

template <bool kResidual, bool kRound>
RIDGELINE_BF16 int rows_of(const DotFinish& f, const DotSegment& s) {
  const float* sums = static_cast<const float*>(f.sums);
  const uint16_t* residual = static_cast<const uint16_t*>(f.residuals[0].data);
  uint16_t* y = static_cast<uint16_t*>(f.y);
  const int64_t y_row = f.y_row, residual_row = f.residuals[0].row;
  const int rows = f.rows;
  const __m512 low = _mm512_set1_ps(s.low);
  __m512 bias0 = _mm512_setzero_ps(), bias1 = bias0;
  if (s.bias.data) {
    bias0 = s.bias.stride ? _mm512_loadu_ps(s.bias.data + f.column) : _mm512_set1_ps(*s.bias.data);
    bias1 = s.bias.stride ? _mm512_loadu_ps(s.bias.data + f.column + 16) : bias0;
  }
  for (int row = 0; row < rows; ++row, sums += kDotColumns, y += y_row) {
    __m512 a = _mm512_add_ps(_mm512_loadu_ps(sums), bias0), b = _mm512_add_ps(_mm512_loadu_ps(sums + 16), bias1);
    __mmask16 lost = 0;
    if constexpr (kResidual) {
      if constexpr (kRound) {
        lost = _mm512_fpclass_ps_mask(a, kSubnormal) | _mm512_fpclass_ps_mask(b, kSubnormal);
        a = widened((__m256i)_mm512_cvtneps_pbh(a));
        b = widened((__m256i)_mm512_cvtneps_pbh(b));
      }
      const __m256i* r = reinterpret_cast<const __m256i*>(residual + row * residual_row);
      a = _mm512_add_ps(a, widened(_mm256_loadu_si256(r)));
      b = _mm512_add_ps(b, widened(_mm256_loadu_si256(r + 1)));
    }
    a = _mm512_max_ps(low, a);  // the second one where they are zeros or one is NaN
    b = _mm512_max_ps(low, b);
    lost |= _mm512_fpclass_ps_mask(a, kSubnormal) | _mm512_fpclass_ps_mask(b, kSubnormal);
    if (__builtin_expect(lost != 0, 0)) return row;
    _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh(b, a));
  }
  return rows;
}

}  // namespace

int dot_rows_to_bf16(const DotFinish& f, const DotSegment& s) {
  static const bool has = has_feature("avx512_bf16");
  if (!has || active_isa() != Isa::kAvx512 || f.cols != kDotColumns) return 0;
  if (!s.has_residual) return rows_of<false, false>(f, s);
  return s.round_bias ? rows_of<true, true>(f, s) : rows_of<true, false>(f, s);
}

}  // namespace ridgeline::cpu

#else

namespace ridgeline::cpu {
int dot_rows_to_bf16(const DotFinish&, const DotSegment&) { return 0; }
}  // namespace ridgeline::cpu
#endif
