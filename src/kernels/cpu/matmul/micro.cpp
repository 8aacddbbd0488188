#include "kernels/cpu/matmul/micro.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/micro.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/masked_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Rows of a tile. AVX-512: 14 rows x 2 vectors = 28 sums, 2 of B, 1 broadcast of 32 registers; AVX2: 6 x 2 of 16.
#if HWY_TARGET == HWY_AVX3
constexpr int kRows = 14;
#elif HWY_TARGET == HWY_AVX2
constexpr int kRows = 6;
#else
constexpr int kRows = 4;
#endif

constexpr int kAhead = 256;  // floats

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// What follows the sum, and the store. One pass over the registers for each thing to do: one branch each, where a
// branch per vector cost 10 points at k = 64.
template <int MR, int NB, bool kMasked>
HWY_INLINE void Finish(const MicroTile& tile, V (&acc)[MR][NB]) {
  const D d;
  constexpr int N = int(hn::MaxLanes(d));
  const auto mask = hn::FirstN(d, size_t(kMasked ? tile.cols - (NB - 1) * N : 0));
  if (tile.alpha != 1.0f) {
    const V alpha = hn::Set(d, tile.alpha);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < NB; ++j) acc[r][j] = hn::Mul(acc[r][j], alpha);
    }
  }
  const float* bias = tile.bias;
  const float* add = tile.add;
  float* c = tile.c;
  const int64_t add_row = tile.add_row, c_row = tile.c_row;
  if (bias) {
#pragma GCC unroll 4
    for (int j = 0; j < NB; ++j) {
      const V v = kMasked && j == NB - 1 ? LoadMasked(mask, d, bias + j * N) : hn::LoadU(d, bias + j * N);
#pragma GCC unroll 16
      for (int r = 0; r < MR; ++r) acc[r][j] = hn::Add(acc[r][j], v);
    }
  }
  if (add) {
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r, add += add_row) {
#pragma GCC unroll 4
      for (int j = 0; j < NB; ++j)
        acc[r][j] =
            hn::Add(acc[r][j], kMasked && j == NB - 1 ? LoadMasked(mask, d, add + j * N) : hn::LoadU(d, add + j * N));
    }
  }
  if (tile.clamp) {
    const V low = hn::Set(d, tile.low), high = hn::Set(d, tile.high);
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 4
      for (int j = 0; j < NB; ++j) {  // written so that NaN passes
        acc[r][j] = hn::IfThenElse(hn::Lt(acc[r][j], low), low, acc[r][j]);
        acc[r][j] = hn::IfThenElse(hn::Gt(acc[r][j], high), high, acc[r][j]);
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; ++r, c += c_row) {
#pragma GCC unroll 4
    for (int j = 0; j < NB; ++j) {
      if (kMasked && j == NB - 1) {
        hn::BlendedStore(acc[r][j], mask, d, c + j * N);
      } else {
        hn::StoreU(acc[r][j], d, c + j * N);
      }
    }
  }
}

// kLone: no other tile reads this panel, so what comes next in it is fetched (1 KB ahead, into the first cache);
// otherwise a line of the next panel at each k, into the second. Measured with B in DRAM, GFLOP/s: m = 14, n = 11008, k
// = 8192: 53 by the next panel, 88 by the 1 KB; m = 16 to 128, k = 4096: 10 to 30 points gained by the next panel. With
// B in the second cache each is worth nothing, and both together cost 3 points. Two panels side by side (6 rows x 4
// vectors) lost to one at every m: 46 against 70 at m = 6, k = 4096.
template <int MR, int NB, bool kMasked, bool kLone = false>
void Tile(const MicroTile& tile) {
  const D d;
  constexpr int N = int(hn::MaxLanes(d));
  V acc[MR][NB];
  {
    const float* c = tile.c;
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r, c += tile.c_row) {
#pragma GCC unroll 4
      for (int j = 0; j < NB; ++j) {
        acc[r][j] = hn::Zero(d);
        hwy::Prefetch(c + j * N);
      }
    }
  }
  const int64_t a_row = tile.a_row;
  const float* HWY_RESTRICT b = tile.b;
  const float* ahead = tile.ahead;
  const auto mask = hn::FirstN(d, size_t(kMasked ? tile.cols - (NB - 1) * N : 0));
  const float* HWY_RESTRICT a0 = tile.a;
  const float* HWY_RESTRICT a5 = a0 + 5 * a_row;
  const float* HWY_RESTRICT a10 = a0 + 10 * a_row;
#pragma GCC unroll 4
  for (int64_t t = 0; t < tile.length; ++t) {
    V w[NB];
#pragma GCC unroll 4
    for (int j = 0; j < NB; ++j) {
      const float* p = b + j * N;
      w[j] = kMasked && j == NB - 1 ? LoadMasked(mask, d, p) : hn::LoadU(d, p);
      if (kLone) hwy::Prefetch(p + kAhead);
    }
#pragma GCC unroll 16
    for (int r = 0; r < MR; ++r) {
      const float* p = r < 5 ? a0 + r * a_row : r < 10 ? a5 + (r - 5) * a_row : a10 + (r - 10) * a_row;
      const V x = hn::Set(d, *p);
#pragma GCC unroll 4
      for (int j = 0; j < NB; ++j) acc[r][j] = hn::MulAdd(x, w[j], acc[r][j]);
    }
    ++a0;
    ++a5;
    ++a10;
    b += tile.b_row;
    if (!kLone) {
      __builtin_prefetch(ahead, 0, 2);
      ahead += tile.ahead_step;
    }
  }
  Finish<MR, NB, kMasked>(tile, acc);
}

// Few rows: B comes from far away and is used once, so several k at a time, for enough independent sums, and a fetch
// well ahead in the one stream that all panels make. From DRAM: 17.5 GB/s by 1 KB ahead, 15.3 by none, 13.5 by 4 KB.
template <int MR, int NB, bool kMasked>
void Thin(const MicroTile& tile) {
  const D d;
  constexpr int N = int(hn::MaxLanes(d)), U = MR == 1 ? 4 : 2;
  V sums[U][MR][NB];
#pragma GCC unroll 4
  for (int u = 0; u < U; ++u) {
#pragma GCC unroll 4
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 2
      for (int j = 0; j < NB; ++j) sums[u][r][j] = hn::Zero(d);
    }
  }
  const float* HWY_RESTRICT a = tile.a;
  const float* HWY_RESTRICT b = tile.b;
  const int64_t a_row = tile.a_row, b_row = tile.b_row;
  int64_t t = 0;
  for (; t + U <= tile.length; t += U, a += U) {
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u, b += b_row) {
      V w[NB];
#pragma GCC unroll 2
      for (int j = 0; j < NB; ++j) {
        w[j] = hn::LoadU(d, b + j * N);
        hwy::Prefetch(b + j * N + kAhead);
      }
#pragma GCC unroll 4
      for (int r = 0; r < MR; ++r) {
        const V x = hn::Set(d, a[r * a_row + u]);
#pragma GCC unroll 2
        for (int j = 0; j < NB; ++j) sums[u][r][j] = hn::MulAdd(x, w[j], sums[u][r][j]);
      }
    }
  }
  V acc[MR][NB];
#pragma GCC unroll 4
  for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 2
    for (int j = 0; j < NB; ++j) {
      acc[r][j] = sums[0][r][j];
#pragma GCC unroll 4
      for (int u = 1; u < U; ++u) acc[r][j] = hn::Add(acc[r][j], sums[u][r][j]);
    }
  }
  for (; t < tile.length; ++t, ++a, b += b_row) {
#pragma GCC unroll 4
    for (int r = 0; r < MR; ++r) {
#pragma GCC unroll 2
      for (int j = 0; j < NB; ++j) acc[r][j] = hn::MulAdd(hn::Set(d, a[r * a_row]), hn::LoadU(d, b + j * N), acc[r][j]);
    }
  }
  Finish<MR, NB, kMasked>(tile, acc);
}

template <int MR>
void Fill(MicroKernels& kernels) {
  kernels.tile[MR][1][0] = Tile<MR, 1, false>;
  kernels.tile[MR][1][1] = Tile<MR, 1, true>;
  kernels.tile[MR][2][0] = Tile<MR, 2, false>;
  kernels.tile[MR][2][1] = Tile<MR, 2, true>;
  kernels.lone[MR] = Tile<MR, 2, false, true>;
  if constexpr (MR <= kMaxThinRows) {
    kernels.thin[MR][1][0] = Thin<MR, 1, false>;
    kernels.thin[MR][1][1] = Thin<MR, 1, true>;
    kernels.thin[MR][2][0] = Thin<MR, 2, false>;
    kernels.thin[MR][2][1] = Thin<MR, 2, true>;
  }
  if constexpr (MR > 1) Fill<MR - 1>(kernels);
}

void FillAll(MicroKernels* kernels) {
  kernels->lanes = int(hn::MaxLanes(D()));
  kernels->max_rows = kRows;
  Fill<kRows>(*kernels);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(FillAll);
}

const MicroKernels& micro_kernels() {
  static MicroKernels of_isa[4];  // by Isa
  MicroKernels& kernels = of_isa[int(active_isa())];
  if (kernels.lanes == 0) HWY_DYNAMIC_DISPATCH(FillAll)(&kernels);
  return kernels;
}

}  // namespace ridgeline::cpu
#endif
