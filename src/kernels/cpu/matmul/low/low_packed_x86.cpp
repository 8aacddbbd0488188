// LowBitMatMul's tiles on VNNI for more than a few rows: up to 7 rows by 32 columns, sums in i32 and in f32, or 14 with
// one scale a row and no sums in f32. By 16 columns each activation served one product: two loads a cycle bound it.
// All of a tile's rows stand together, so that one pointer serves them: with rows a pitch apart their addresses did not
// fit the registers, and a pitch of 4 KiB put them into one set of the first cache.
#include "kernels/cpu/matmul/low/low_groups.h"
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
constexpr int kAhead = 1024;  // bytes, from the second cache into the first

template <int MR>
RIDGELINE_VNNI RIDGELINE_INLINE void multiply(__m512i (&acc)[MR][2], const uint8_t* w, const int8_t* a) {
  const __m512i w0 = _mm512_loadu_si512(w), w1 = _mm512_loadu_si512(w + 64);
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
    int32_t four;
    __builtin_memcpy(&four, a + r * 4, 4);
    const __m512i x = _mm512_set1_epi32(four);
    acc[r][0] = _mm512_dpbusd_epi32(acc[r][0], w0, x);
    acc[r][1] = _mm512_dpbusd_epi32(acc[r][1], w1, x);
  }
}

// A chunk's sums; kUnit of k are one stretch of code.
template <int MR, int kUnit, bool kExact>
RIDGELINE_VNNI RIDGELINE_INLINE void chunk_sums(const LowPackedTile& t, __m512i (&acc)[MR][2], const int32_t* start,
                                                const uint8_t*& w, const int8_t*& a, const uint8_t*& next) {
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) acc[r][0] = acc[r][1] = _mm512_set1_epi32(start[r]);
  int64_t k = 0;
  do {
    for (int i = 0; i < t.next_lines; ++i, next += 64) __builtin_prefetch(next, 0, 2);
#pragma GCC unroll 32
    for (int step = 0; step < kUnit / 4; ++step, w += kColumns * 4, a += MR * 4) multiply<MR>(acc, w, a);
    k += kUnit;
  } while (!kExact && k < t.chunk);
}

template <int MR, int kUnit, bool kExact, bool kLow, bool kOneScale>
RIDGELINE_VNNI void packed(const LowPackedTile& t) {
  const uint8_t *w = t.w, *next = t.next;
  const int8_t* a = t.a;
  const int32_t* start = t.start;
  const float *a_scale = t.scale, *weighted = t.weighted, *scales = t.scales.scale, *lows = t.scales.low;
  __m512 total[MR][2];
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) total[r][0] = total[r][1] = _mm512_setzero_ps();
  for (int64_t chunk = 0; chunk < t.chunks; ++chunk) {
    __m512i acc[MR][2];
    chunk_sums<MR, kUnit, kExact>(t, acc, start, w, a, next);
    const __m512 s0 = _mm512_loadu_ps(scales), s1 = _mm512_loadu_ps(scales + 16);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      __m512 v0 = _mm512_cvtepi32_ps(acc[r][0]), v1 = _mm512_cvtepi32_ps(acc[r][1]);
      if constexpr (!kOneScale) {
        const __m512 by = _mm512_set1_ps(a_scale[r]);
        total[r][0] = _mm512_fmadd_ps(v0, _mm512_mul_ps(s0, by), total[r][0]);
        total[r][1] = _mm512_fmadd_ps(v1, _mm512_mul_ps(s1, by), total[r][1]);
      } else {
        total[r][0] = _mm512_fmadd_ps(v0, s0, total[r][0]);
        total[r][1] = _mm512_fmadd_ps(v1, s1, total[r][1]);
      }
    }
    if constexpr (kLow) {
      const __m512 l0 = _mm512_loadu_ps(lows), l1 = _mm512_loadu_ps(lows + 16);
#pragma GCC unroll 16
      for (int r = 0; r < MR; ++r) {
        const __m512 by = _mm512_set1_ps(weighted[r]);
        total[r][0] = _mm512_fnmadd_ps(l0, by, total[r][0]);
        total[r][1] = _mm512_fnmadd_ps(l1, by, total[r][1]);
      }
      lows += kColumns, weighted += MR;
    }
    start += MR;
    if constexpr (!kOneScale) a_scale += MR;
    scales += kColumns;
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
    const __m512 by = kOneScale ? _mm512_set1_ps(t.scale[r]) : _mm512_set1_ps(1);
    _mm512_storeu_ps(t.sums + r * kColumns, kOneScale ? _mm512_mul_ps(total[r][0], by) : total[r][0]);
    _mm512_storeu_ps(t.sums + r * kColumns + 16, kOneScale ? _mm512_mul_ps(total[r][1], by) : total[r][1]);
  }
}

// One chunk: no sums in f32, so twice the rows. They are scaled in memory: with the scales applied to the registers, in
// a loop over both halves, GCC 12 stored all 26 at every turn of the loop over k (0.73 of the peak for 1.0).
template <int MR, int kUnit>
RIDGELINE_VNNI void whole(const LowPackedTile& t) {
  const uint8_t *w = t.w, *next = t.next;
  const int8_t* a = t.a;
  __m512i acc[MR][2];
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) acc[r][0] = acc[r][1] = _mm512_setzero_si512();
  for (int64_t k = 0; k < t.chunk; k += kUnit) {
    for (int i = 0; i < t.next_lines; ++i, next += 64) __builtin_prefetch(next, 0, 2);
#pragma GCC unroll 32
    for (int step = 0; step < kUnit / 4; ++step, w += kColumns * 4, a += MR * 4) {
      __builtin_prefetch(w + kAhead);
      __builtin_prefetch(w + kAhead + 64);
      __builtin_prefetch(a + kAhead);
      multiply<MR>(acc, w, a);
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r) {
    _mm512_storeu_si512(t.sums + r * kColumns, acc[r][0]);
    _mm512_storeu_si512(t.sums + r * kColumns + 16, acc[r][1]);
  }
  low_scale_rows({t.sums, MR, true, t.scales.scale, t.scales.low, t.scale, t.weighted, t.start, 1});
}

template <int MR, int kUnit, bool kExact>
void of_scales(const LowPackedTile& t) {
  if (t.scales.low) return packed<MR, kUnit, kExact, true, false>(t);
  t.one_scale ? packed<MR, kUnit, kExact, false, true>(t) : packed<MR, kUnit, kExact, false, false>(t);
}
template <int MR>
void any_packed(const LowPackedTile& t) {
  if (t.chunk % 32) return of_scales<MR, 4, false>(t);
  t.chunk == 32 ? of_scales<MR, 32, true>(t) : of_scales<MR, 32, false>(t);
}
template <int MR>
void any_whole(const LowPackedTile& t) {
  t.chunk % 32 ? whole<MR, 4>(t) : whole<MR, 32>(t);
}

}  // namespace

int low_packed_rows(int64_t m, int64_t chunks) {
  if (active_isa() != Isa::kAvx512 || !has_feature("avx512_vnni") || m <= kLowFewRows) return 0;
  const int64_t most = chunks == 1 ? 14 : 7, tiles = (m + most - 1) / most, rows = (m + tiles - 1) / tiles;
  return int(chunks == 1 ? (rows + 1) / 2 * 2 : rows);
}

void low_packed_tile(const LowPackedTile& t, int rows) {
  if (t.chunks == 1) {
    switch (rows) {
      case 6:
        return any_whole<6>(t);
      case 8:
        return any_whole<8>(t);
      case 10:
        return any_whole<10>(t);
      case 12:
        return any_whole<12>(t);
      default:
        return any_whole<14>(t);
    }
  }
  switch (rows) {
    case 4:
      return any_packed<4>(t);
    case 5:
      return any_packed<5>(t);
    case 6:
      return any_packed<6>(t);
    default:
      return any_packed<7>(t);
  }
}

}  // namespace ridgeline::cpu

#else

namespace ridgeline::cpu {
int low_packed_rows(int64_t, int64_t) { return 0; }
void low_packed_tile(const LowPackedTile&, int) {}
}  // namespace ridgeline::cpu
#endif
