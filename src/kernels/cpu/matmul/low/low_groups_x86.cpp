#include "kernels/cpu/matmul/low/low_groups.h"

#if defined(__x86_64__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // GCC 12 sees it in its own _mm512 intrinsics (its bug 105593)
#include <immintrin.h>

namespace ridgeline::cpu {
namespace {

#define RIDGELINE_AMX __attribute__((target("amx-tile,amx-int8,avx512f,avx512bw,avx512vl")))
#define RIDGELINE_INLINE inline __attribute__((always_inline))

constexpr int kColumns = 32;
constexpr int64_t kRowBytes = kColumns * 4;

struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
constexpr TileConfig tile_config(int bytes) {  // 4 and 5: rows of A; 6 and 7: columns of w
  TileConfig c;
  for (int i = 0; i < 8; ++i) {
    c.row_bytes[i] = uint16_t(i == 4 || i == 5 ? bytes : 64);
    c.rows[i] = uint8_t(i >= 6 ? bytes / 4 : 16);
  }
  return c;
}
// Static: GCC's intrinsic tells the compiler of its first eight bytes alone.
constexpr TileConfig kWhole = tile_config(64), kHalf = tile_config(32);

// A pair of chunks (or the last alone) of up to 32 rows, whose sums stand in memory.
struct Pair {
  const int32_t* sums = nullptr;
  int64_t chunk = 0;
  int row = 0, rows = 0;  // rows 0: nothing is left
  int count = 0;
};

template <int kCount, bool kOneScale, bool kLow>
RIDGELINE_AMX RIDGELINE_INLINE void add_rows(const LowGroups& g, const Pair& p, int begin, int end) {
  __m512 scale[kCount][2], low[kCount][2];
#pragma GCC unroll 2
  for (int c = 0; c < kCount; ++c) {
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      scale[c][h] = _mm512_loadu_ps(g.scale + (p.chunk + c) * kColumns + h * 16);
      if constexpr (kLow) low[c][h] = _mm512_loadu_ps(g.low + (p.chunk + c) * kColumns + h * 16);
    }
  }
  const __mmask16 before = g.first && p.chunk == 0 ? 0 : 0xffff;
  float* y = g.y + (p.row + begin) * kColumns;
  const int32_t* sums = p.sums + begin * kColumns;
  int64_t at = (p.row + begin) * g.a_pitch + p.chunk;
  for (int r = begin; r < end; ++r, y += kColumns, sums += kColumns, at += g.a_pitch) {
    __m512 v[2] = {_mm512_maskz_loadu_ps(before, y), _mm512_maskz_loadu_ps(before, y + 16)};
#pragma GCC unroll 2
    for (int c = 0; c < kCount; ++c) {
#pragma GCC unroll 2
      for (int h = 0; h < 2; ++h) {
        const __m512 sum = _mm512_cvtepi32_ps(_mm512_load_si512(sums + c * 1024 + h * 16));
        const __m512 by = kOneScale ? scale[c][h] : _mm512_mul_ps(scale[c][h], _mm512_set1_ps(g.a_scale[at + c]));
        v[h] = _mm512_fmadd_ps(sum, by, v[h]);
        if constexpr (kLow) v[h] = _mm512_fnmadd_ps(low[c][h], _mm512_set1_ps(g.a_weighted[at + c]), v[h]);
      }
    }
    _mm512_storeu_ps(y, v[0]);
    _mm512_storeu_ps(y + 16, v[1]);
  }
}

template <bool kOneScale, bool kLow>
RIDGELINE_AMX RIDGELINE_INLINE void add(const LowGroups& g, const Pair& p, int begin, int end) {
  p.count == 2 ? add_rows<2, kOneScale, kLow>(g, p, begin, end) : add_rows<1, kOneScale, kLow>(g, p, begin, end);
}

// The products of a pair, while the sums of `before` are added up.
template <bool kTwo, bool kOneScale, bool kLow>
RIDGELINE_AMX RIDGELINE_INLINE void multiply(const LowGroups& g, const Pair& before, const Pair& p, int32_t* to,
                                             const uint8_t*& next) {
  const int64_t piece = g.chunk % 64 ? 32 : 64, steps = g.chunk / piece, slices = p.count * steps;
  const int8_t* rows = g.a + p.row / 16 * g.a_rows;
  const int8_t* w = g.w + p.chunk * g.chunk * kColumns;
  int64_t k = g.k + p.chunk * g.chunk, slice = 0;
  int done = 0;
  for (int c = 0; c < p.count; ++c, to += 1024) {
    _tile_zero(0);
    _tile_zero(1);
    if constexpr (kTwo) {
      _tile_zero(2);
      _tile_zero(3);
    }
    for (int64_t step = 0; step < steps; ++step, k += piece, w += piece * kColumns) {
      const int8_t* a = rows + k / 64 * 1024 + k % 64;
      _tile_loadd(6, w, kRowBytes);
      _tile_stream_loadd(4, a, 64);
      _tile_loadd(7, w + 64, kRowBytes);
      if constexpr (kTwo) _tile_stream_loadd(5, a + g.a_rows, 64);
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 4, 7);
      if constexpr (kTwo) {
        _tile_dpbssd(2, 5, 6);
        _tile_dpbssd(3, 5, 7);
      }
      const int end = int(before.rows * ++slice / slices);
      add<kOneScale, kLow>(g, before, done, end);
      done = end;
    }
    _tile_stored(0, to, kRowBytes);
    _tile_stored(1, to + 16, kRowBytes);
    if constexpr (kTwo) {
      _tile_stored(2, to + 512, kRowBytes);
      _tile_stored(3, to + 528, kRowBytes);
    }
    for (int64_t i = 0; i < g.next_lines && next < g.next_end; ++i, next += 64)
      _mm_prefetch(reinterpret_cast<const char*>(next), _MM_HINT_T1);
  }
}

template <bool kOneScale, bool kLow>
RIDGELINE_AMX void run(const LowGroups& g) {
  const uint8_t* next = g.next;
  Pair before;
  int which = 0;
  for (int row = 0; row < g.rows; row += 32) {
    for (int64_t chunk = 0; chunk < g.chunks; chunk += 2, which ^= 1) {
      int32_t* to = g.sums + which * 2048;
      const Pair p{to, chunk, row, g.rows - row < 32 ? g.rows - row : 32, chunk + 1 < g.chunks ? 2 : 1};
      if (p.rows > 16)
        multiply<true, kOneScale, kLow>(g, before, p, to, next);
      else
        multiply<false, kOneScale, kLow>(g, before, p, to, next);
      before = p;
    }
  }
  add<kOneScale, kLow>(g, before, 0, before.rows);
}

RIDGELINE_AMX void enter(int64_t chunk) { _tile_loadconfig(chunk % 64 ? &kHalf : &kWhole); }
RIDGELINE_AMX void leave() {
  _tile_release();
  _mm_sfence();  // stores past the caches, before another thread is told
}

#define RIDGELINE_WIDE __attribute__((target("avx512f")))
RIDGELINE_WIDE void scale_rows(const LowRowScales& s) {
  for (int r = 0; r < s.rows; ++r) {
    const int64_t at = r * s.a_pitch;
    const __m512 a_scale = _mm512_set1_ps(s.a_scale[at]);
    for (int h = 0; h < kColumns; h += 16) {
      float* y = s.y + r * kColumns + h;
      __m512 v = _mm512_loadu_ps(y), by = a_scale;
      if (s.integers) v = _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_castps_si512(v), _mm512_set1_epi32(s.start[at])));
      if (s.scale) by = _mm512_mul_ps(by, _mm512_loadu_ps(s.scale + h));
      v = _mm512_mul_ps(v, by);
      if (s.low) v = _mm512_fnmadd_ps(_mm512_loadu_ps(s.low + h), _mm512_set1_ps(s.a_weighted[at]), v);
      _mm512_storeu_ps(y, v);
    }
  }
}

}  // namespace

void low_groups_enter(int64_t chunk) { enter(chunk); }
void low_groups_leave() { leave(); }
void low_groups(const LowGroups& g) {
  if (g.low) return run<false, true>(g);
  g.a_scale ? run<false, false>(g) : run<true, false>(g);
}
void low_scale_rows(const LowRowScales& rows) { scale_rows(rows); }

}  // namespace ridgeline::cpu

#else

namespace ridgeline::cpu {
void low_groups_enter(int64_t) {}
void low_groups_leave() {}
void low_groups(const LowGroups&) {}
void low_scale_rows(const LowRowScales&) {}
}  // namespace ridgeline::cpu
#endif
