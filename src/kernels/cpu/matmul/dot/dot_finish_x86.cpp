// To bf16 by the instruction that rounds: 16 operations a row instead of 34. It takes
// subnormal sums for zero, so rows with any are left to the general form. To bytes two rows at a time, so that packing
// with saturation takes the place of bounds: 8 operations a vector instead of 12, twice quantized with a residual 21
// instead of 29.
#include "kernels/cpu/matmul/dot/dot_finish_x86.h"

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

__mmask32 columns_of(const DotFinish& f) { return f.cols < kDotColumns ? (1u << f.cols) - 1 : ~0u; }

RIDGELINE_BF16 inline __attribute__((always_inline)) __m512 widened(__m256i half) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

template <bool kResidual, bool kRound, bool kFull>
RIDGELINE_BF16 int rows_of(const DotFinish& f, const DotSegment& s) {
  const float* sums = static_cast<const float*>(f.sums);
  const uint16_t* residual = static_cast<const uint16_t*>(f.residuals[0].data);
  uint16_t* y = static_cast<uint16_t*>(f.y);
  const int64_t y_row = f.y_row, residual_row = f.residuals[0].row;
  const int rows = f.rows;
  const __mmask32 wanted = columns_of(f);
  const __mmask16 first = __mmask16(wanted), second = __mmask16(wanted >> 16);
  const __m512 low = _mm512_set1_ps(s.low);
  __m512 bias0 = _mm512_setzero_ps(), bias1 = bias0;
  if (s.bias.data) {
    bias0 = s.bias.stride ? _mm512_maskz_loadu_ps(first, s.bias.data + f.column) : _mm512_set1_ps(*s.bias.data);
    bias1 = s.bias.stride ? _mm512_maskz_loadu_ps(second, s.bias.data + f.column + 16) : bias0;
  }
  for (int row = 0; row < rows; ++row, sums += kDotColumns, y += y_row) {
    __m512 a = kFull ? _mm512_loadu_ps(sums) : _mm512_maskz_loadu_ps(first, sums);
    __m512 b = kFull ? _mm512_loadu_ps(sums + 16) : _mm512_maskz_loadu_ps(second, sums + 16);
    a = _mm512_add_ps(a, bias0);
    b = _mm512_add_ps(b, bias1);
    __mmask16 lost = 0;
    if constexpr (kResidual) {
      if constexpr (kRound) {
        lost = _mm512_fpclass_ps_mask(a, kSubnormal) | _mm512_fpclass_ps_mask(b, kSubnormal);
        a = widened((__m256i)_mm512_cvtneps_pbh(a));
        b = widened((__m256i)_mm512_cvtneps_pbh(b));
      }
      const uint16_t* r = residual + row * residual_row;
      a = _mm512_add_ps(a, widened(kFull ? _mm256_loadu_epi16(r) : _mm256_maskz_loadu_epi16(first, r)));
      b = _mm512_add_ps(b, widened(kFull ? _mm256_loadu_epi16(r + 16) : _mm256_maskz_loadu_epi16(second, r + 16)));
    }
    a = _mm512_max_ps(low, a);  // the second one where they are zeros or one is NaN
    b = _mm512_max_ps(low, b);
    lost |= _mm512_fpclass_ps_mask(a, kSubnormal) | _mm512_fpclass_ps_mask(b, kSubnormal);
    if (__builtin_expect(lost != 0, 0)) return row;
    if constexpr (kFull)
      _mm512_storeu_si512(y, (__m512i)_mm512_cvtne2ps_pbh(b, a));
    else
      _mm512_mask_storeu_epi16(y, wanted, (__m512i)_mm512_cvtne2ps_pbh(b, a));
  }
  return rows;
}

// ---- bytes

#define RIDGELINE_512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define RIDGELINE_512_INLINE RIDGELINE_512 inline __attribute__((always_inline))

RIDGELINE_512_INLINE __m512 line_at(const DotLine& line, __mmask16 wanted, int64_t column, float absent) {
  if (!line.data) return _mm512_set1_ps(absent);
  return line.stride ? _mm512_maskz_loadu_ps(wanted, line.data + column) : _mm512_set1_ps(*line.data);
}

/// As in dot_segments.cpp: the correctly rounded quotient.
RIDGELINE_512_INLINE __m512 quotient(__m512 v, __m512 step, __m512 inverse) {
  const __m512 q = _mm512_mul_ps(v, inverse);
  return _mm512_fmadd_ps(_mm512_fnmadd_ps(q, step, v), inverse, q);
}

/// `kZero`: levels are moved by a zero point and bounded from below; `kShifted`: the residual has a zero point.
template <bool kTwo, bool kResidual, bool kZero, bool kShifted, bool kFull>
RIDGELINE_512 void bytes_of(const DotFinish& f, const DotSegment* segments) {
  const DotSegment &one = segments[0], &last = segments[kTwo ? 1 : 0];
  const int32_t* sums = static_cast<const int32_t*>(f.sums);
  uint8_t* y = static_cast<uint8_t*>(f.y);
  const uint8_t* residual = static_cast<const uint8_t*>(f.residuals[kTwo ? 1 : 0].data);
  const int64_t y_row = f.y_row, residual_row = f.residuals[kTwo ? 1 : 0].row;
  const int rows = f.rows;
  __m512i terms[2];
  __m512 scale[2], bias[2], scale2[2];
  const __mmask32 wanted = columns_of(f);
  const __mmask16 half[2] = {__mmask16(wanted), __mmask16(wanted >> 16)};
  for (int h = 0; h < 2; ++h) {
    terms[h] = f.terms ? _mm512_maskz_loadu_epi32(half[h], f.terms + 16 * h) : _mm512_setzero_si512();
    scale[h] = line_at(one.scale, half[h], f.column + 16 * h, 1);
    bias[h] = line_at(one.bias, half[h], f.column + 16 * h, 0);
    scale2[h] = line_at(last.scale, half[h], f.column + 16 * h, 1);
  }
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to whole numbers
  const float before = kTwo && last.before.data ? *last.before.data : 0.0f;
  const __m512 step1 = _mm512_set1_ps(one.step), inverse1 = _mm512_set1_ps(one.inverse),
               least1 = _mm512_set1_ps(float(one.least - one.zero)), most1 = _mm512_set1_ps(float(one.most - one.zero)),
               magic = _mm512_set1_ps(kMagic), shift = _mm512_set1_ps(kMagic - float(one.zero) + before),
               step = _mm512_set1_ps(last.step), inverse = _mm512_set1_ps(last.inverse),
               r_before = _mm512_set1_ps(last.r_before), r_scale = _mm512_set1_ps(last.r_scale);
  const __m512i zero = _mm512_set1_epi32(last.zero), least = _mm512_set1_epi32(last.least);
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int row = 0; row < rows; row += 2) {
    const int second = row + 1 < rows ? 1 : 0;  // the last one twice
    __m512i words[2];
#pragma GCC unroll 2
    for (int r = 0; r < 2; ++r) {
      const int at = r ? row + second : row;
      __m512i levels[2];
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const int32_t* from = sums + at * kDotColumns + 16 * h;
        const __m512i sum =
            _mm512_add_epi32(kFull ? _mm512_loadu_si512(from) : _mm512_maskz_loadu_epi32(half[h], from), terms[h]);
        __m512 v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), scale[h], bias[h]);
        if constexpr (kTwo) {
          const __m512 q = _mm512_min_ps(_mm512_max_ps(quotient(v, step1, inverse1), least1), most1);
          v = _mm512_mul_ps(_mm512_sub_ps(_mm512_add_ps(q, magic), shift), scale2[h]);
        }
        if constexpr (kResidual) {
          const uint8_t* r = residual + at * residual_row + 16 * h;
          const __m128i bytes = kFull ? _mm_loadu_epi8(r) : _mm_maskz_loadu_epi8(half[h], r);
          __m512 x = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
          if constexpr (kShifted) x = _mm512_sub_ps(x, r_before);
          v = _mm512_add_ps(v, _mm512_mul_ps(x, r_scale));
        }
        levels[h] = _mm512_cvtps_epi32(quotient(v, step, inverse));
        if constexpr (kZero) levels[h] = _mm512_max_epi32(_mm512_add_epi32(levels[h], zero), least);
      }
      words[r] = _mm512_packs_epi32(levels[0], levels[1]);
    }
    const __m512i both = _mm512_permutexvar_epi32(order, _mm512_packus_epi16(words[0], words[1]));
    _mm256_mask_storeu_epi8(y + row * y_row, wanted, _mm512_castsi512_si256(both));
    if (second) _mm256_mask_storeu_epi8(y + (row + 1) * y_row, wanted, _mm512_extracti64x4_epi64(both, 1));
  }
}

template <bool kTwo, bool kResidual, bool kFull>
void bytes_with(const DotFinish& f, const DotSegment* segments) {
  const DotSegment& last = segments[kTwo ? 1 : 0];
  const bool zero = last.zero != 0 || last.least > 0;
  if (kResidual && last.r_before != 0)
    zero ? bytes_of<kTwo, kResidual, true, kResidual, kFull>(f, segments)
         : bytes_of<kTwo, kResidual, false, kResidual, kFull>(f, segments);
  else
    zero ? bytes_of<kTwo, kResidual, true, false, kFull>(f, segments)
         : bytes_of<kTwo, kResidual, false, false, kFull>(f, segments);
}
template <bool kFull>
void bytes_with(const DotFinish& f, const DotSegment* segments, bool two) {
  if (two)
    segments[1].has_residual ? bytes_with<true, true, kFull>(f, segments) : bytes_with<true, false, kFull>(f, segments);
  else
    segments[0].has_residual ? bytes_with<false, true, kFull>(f, segments)
                             : bytes_with<false, false, kFull>(f, segments);
}

/// Is the second segment's line a zero point, and are there no lines that most blocks have no need of?
bool is_lean(const DotSegment* s, bool two) {
  const DotSegment& last = s[two ? 1 : 0];
  if (!s[0].fused || !last.small || last.most != 255) return false;
  if (last.has_residual && (last.residual_dtype != DType::kU8 || last.r_fused || last.r_bias != 0)) return false;
  if (!two) return true;
  if (last.bias.data && (last.bias.stride || *last.bias.data != 0)) return false;
  if (!last.before.data) return true;
  const float before = *last.before.data;
  return !last.before.stride && before >= -1024 && before <= 1024 && before == float(int(before));
}

}  // namespace

bool dot_rows_to_bytes(const DotFinish& f, const DotSegment* segments, bool two) {
  if (active_isa() != Isa::kAvx512 || f.y_dtype != DType::kU8 || !is_lean(segments, two)) return false;
  f.cols == kDotColumns ? bytes_with<true>(f, segments, two) : bytes_with<false>(f, segments, two);
  return true;
}

int dot_rows_to_bf16(const DotFinish& f, const DotSegment& s) {
  if (!s.bf16_instructions || active_isa() != Isa::kAvx512) return 0;
  const bool full = f.cols == kDotColumns;
  if (!s.has_residual) return full ? rows_of<false, false, true>(f, s) : rows_of<false, false, false>(f, s);
  if (s.round_bias) return full ? rows_of<true, true, true>(f, s) : rows_of<true, true, false>(f, s);
  return full ? rows_of<true, false, true>(f, s) : rows_of<true, false, false>(f, s);
}

}  // namespace ridgeline::cpu

#else

namespace ridgeline::cpu {
int dot_rows_to_bf16(const DotFinish&, const DotSegment&) { return 0; }
bool dot_rows_to_bytes(const DotFinish&, const DotSegment*, bool) { return false; }
}  // namespace ridgeline::cpu
#endif
