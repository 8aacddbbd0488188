#include "kernels/cpu/matmul/low/low_tiles.h"

#include <algorithm>

#include "kernels/cpu/simd.h"
#include "ops/low_bit.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/low/low_tiles.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr int kColumns = 32;
constexpr int kAhead = 1024, kFarAhead = 8192;  // bytes
constexpr int kRowsAhead = 512;                 // floats
using D = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<D>;
using D16 = hn::Rebind<uint16_t, D>;
using D8 = hn::Rebind<uint8_t, D>;
using V = hn::Vec<D>;

HWY_INLINE V Half(const D d, const uint16_t* p) {
  const hn::Rebind<hwy::float16_t, D> half;
  return hn::PromoteTo(d, hn::BitCast(half, hn::LoadU(D16(), p)));
}
HWY_INLINE V Brain(const D d, const uint16_t* p) {
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<D>(), hn::LoadU(D16(), p))));
}
// f32, f16 or u8 by their size.
HWY_INLINE V Number(const D d, const void* data, int64_t at, int bytes) {
  if (bytes == 4) return hn::LoadU(d, static_cast<const float*>(data) + at);
  if (bytes == 2) return Half(d, static_cast<const uint16_t*>(data) + at);
#if HWY_TARGET == HWY_SCALAR  // promotes to twice the width alone
  return hn::Set(d, float(static_cast<const uint8_t*>(data)[at]));
#else
  return hn::ConvertTo(d, hn::PromoteTo(DI(), hn::LoadU(D8(), static_cast<const uint8_t*>(data) + at)));
#endif
}

// The two common forms without a branch inside: in the general loop the conversion took a seventh of a 4-bit product
// with one row, and DRAM was idle meanwhile.
template <int kBytes>
void PlainScales(const LowSources& from, float* scale) {
  const D d;
  const int64_t n = int64_t(hn::Lanes(d)), count = from.groups * kColumns;
  for (int64_t i = 0; i < count; i += n) hn::StoreU(Number(d, from.scale, i, kBytes), d, scale + i);
}
void SuperScales(const LowSources& from, float* scale, float* low) {  // q4_k: u8 by f16, both
  const D d;
  const int64_t n = int64_t(hn::Lanes(d)), within = from.groups / from.super_groups;
  for (int64_t super = 0; super < from.super_groups; ++super) {
    for (int64_t c = 0; c < kColumns; c += n) {
      const V s = Number(d, from.super_scale, super * kColumns + c, 2),
              l = Number(d, from.super_min, super * kColumns + c, 2);
      for (int64_t g = super * within; g < (super + 1) * within; ++g) {
        hn::StoreU(hn::Mul(s, Number(d, from.scale, g * kColumns + c, 1)), d, scale + g * kColumns + c);
        hn::StoreU(hn::Mul(l, Number(d, from.min, g * kColumns + c, 1)), d, low + g * kColumns + c);
      }
    }
  }
}

void Scales(const LowSources& from, float* scale, float* low) {
  const D d;
  const int64_t n = int64_t(hn::Lanes(d));
  const LowScaleForm form = low_form(from);
  if (form == LowScaleForm::kF16) return PlainScales<2>(from, scale);
  if (form == LowScaleForm::kF32) return PlainScales<4>(from, scale);
  if (form == LowScaleForm::kSuper) return SuperScales(from, scale, low);
  const int64_t super = from.super_scale ? from.groups / from.super_groups : 1,
                super_min = from.super_min ? from.groups / from.super_min_groups : 1;
  for (int64_t g = 0; g < from.groups; ++g) {
    for (int64_t c = 0; c < kColumns; c += n) {
      V s = Number(d, from.scale, g * kColumns + c, from.scale_bytes);
      if (from.super_scale)
        s = hn::Mul(s, Number(d, from.super_scale, g / super * kColumns + c, from.super_scale_bytes));
      V l = hn::Zero(d);
      if (from.min) {
        l = Number(d, from.min, g * kColumns + c, from.min_bytes);
        if (from.super_min)
          l = hn::Mul(l, Number(d, from.super_min, g / super_min * kColumns + c, from.super_min_bytes));
      }
      if (from.zero) l = hn::MulAdd(s, Number(d, from.zero, g * kColumns + c, 1), l);
      for (int64_t r = 0; r < from.repeat; ++r) {
        hn::StoreU(s, d, scale + (g * from.repeat + r) * kColumns + c);
        if (low) hn::StoreU(l, d, low + (g * from.repeat + r) * kColumns + c);
      }
    }
  }
}

void Widen(const void* a, int64_t count, int kind, float* to) {
  const D d;
  const int64_t n = int64_t(hn::Lanes(d));
  int64_t i = 0;
  const uint16_t* half = static_cast<const uint16_t*>(a);
  for (; i + n <= count; i += n) {
    hn::StoreU(kind == 0   ? hn::LoadU(d, static_cast<const float*>(a) + i)
               : kind == 1 ? Half(d, half + i)
                           : Brain(d, half + i),
               d, to + i);
  }
  if (i == count) return;
  HWY_ALIGN float last[16];
  HWY_ALIGN uint16_t narrow[16] = {};
  if (kind == 0) {
    for (; i < count; ++i) to[i] = static_cast<const float*>(a)[i];
    return;
  }
  for (int64_t j = i; j < count; ++j) narrow[j - i] = half[j];
  hn::StoreU(kind == 1 ? Half(d, narrow) : Brain(d, narrow), d, last);
  for (int64_t j = i; j < count; ++j) to[j] = last[j - i];
}

void Quantize(const float* a, int64_t k, int64_t block, int64_t chunk, int offset, int8_t* levels, float* scale,
              float* weighted, int32_t* start) {
  const D d;
  const DI di;
  const hn::Rebind<int8_t, D> d8;
  const int64_t n = int64_t(hn::Lanes(d));
  for (int64_t b = 0; b < k; b += block) {
    // The largest magnitude by its bits, which infinities and NaNs exceed: one instruction's latency instead of four.
    const auto bits = hn::Set(di, 0x7fffffff);
    auto most = hn::Zero(di), most1 = most, most2 = most, most3 = most;
    int64_t i = b;
    const auto magnitude = [&](int64_t at) HWY_ATTR { return hn::And(hn::BitCast(di, hn::LoadU(d, a + at)), bits); };
    for (; i + 4 * n <= b + block; i += 4 * n) {
      // Rows follow each other, and come from DRAM.
      for (int64_t line = 0; line < 4 * n; line += 16) hwy::Prefetch(a + i + line + kRowsAhead);
      most = hn::Max(most, magnitude(i));
      most1 = hn::Max(most1, magnitude(i + n));
      most2 = hn::Max(most2, magnitude(i + 2 * n));
      most3 = hn::Max(most3, magnitude(i + 3 * n));
    }
    for (; i + n <= b + block; i += n) {
      hwy::Prefetch(a + i + kRowsAhead);
      most = hn::Max(most, magnitude(i));
    }
    int32_t largest_bits = hn::GetLane(hn::MaxOfLanes(di, hn::Max(hn::Max(most, most1), hn::Max(most2, most3))));
    for (; i < b + block; ++i) {
      int32_t one;
      __builtin_memcpy(&one, a + i, 4);
      largest_bits = std::max(largest_bits, one & 0x7fffffff);
    }
    float largest;
    __builtin_memcpy(&largest, &largest_bits, 4);
    const bool finite = largest_bits < 0x7f800000, counts = finite && largest >= kLeastLargest;
    const float inverse = counts ? 127.0f / largest : 0;
    const float step = counts ? largest / 127.0f : finite ? 0 : __builtin_nanf("");
    const V by = hn::Set(d, inverse);
    for (int64_t c = b; c < b + block; c += chunk) {
      auto sums = hn::Zero(di);
      int32_t sum = 0;
      int64_t t = c;
      for (; t + n <= c + chunk; t += n) {
        const auto q = hn::NearestInt(hn::Mul(finite ? hn::LoadU(d, a + t) : hn::Zero(d), by));
        sums = hn::Add(sums, q);
        hn::StoreU(hn::DemoteTo(d8, q), d8, levels + t);
      }
      sum = hn::GetLane(hn::SumOfLanes(di, sums));
      for (; t < c + chunk; ++t) {
        levels[t] = finite ? int8_t(__builtin_nearbyintf(a[t] * inverse)) : int8_t(0);
        sum += levels[t];
      }
      const int64_t at = c / chunk;
      scale[at] = step;
      weighted[at] = step * float(sum);
      start[at] = -offset * sum;
    }
  }
}

// One vector of 16 (or fewer) columns at a time would read each activation again; two or four share it.
template <int MR, int kBits>
HWY_INLINE void Step(const LowTile& t, const float* a, const uint8_t* w, int64_t column, const V scale, const V low,
                     V (&acc)[MR]) {
  const D d;
  const DI di;
  if constexpr (kBits == 16) {
    const uint16_t* p = reinterpret_cast<const uint16_t*>(w) + column;
    const V x = t.kind == 1 ? Half(d, p) : Brain(d, p);
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r) acc[r] = hn::MulAdd(hn::Set(d, a[r * t.a_pitch]), x, acc[r]);
    return;
  }
  auto v = hn::LoadU(di, reinterpret_cast<const int32_t*>(w) + column);
  if constexpr (kBits == 8) v = hn::Xor(v, hn::Set(di, int32_t(0x80808080)));
#pragma GCC unroll 8
  for (int i = 0; i < (kBits == 8 ? 4 : 8); ++i) {
    const auto level = kBits == 8 ? hn::ShiftRight<24>(hn::ShiftLeftSame(v, 24 - 8 * i))
                                  : hn::And(hn::ShiftRightSame(v, i < 4 ? 8 * i : 8 * (i - 4) + 4), hn::Set(di, 15));
    const V x = hn::MulSub(hn::ConvertTo(d, level), scale, low);
#pragma GCC unroll 8
    for (int r = 0; r < MR; ++r) acc[r] = hn::MulAdd(hn::Set(d, a[r * t.a_pitch + i]), x, acc[r]);
  }
}

template <int MR, int kBits>
void Tile(const LowTile& t) {
  const D d;
  constexpr int kWidth = int(hn::MaxLanes(d)), kVectors = kColumns / kWidth;
  constexpr int kTogether = kVectors < 2 ? 1 : 2;
  constexpr int kSteps = kBits == 16 ? 1 : kBits == 8 ? 4 : 8;  // of k a step
  constexpr int64_t kStepBytes = kBits == 16 ? 64 : 128;
  for (int v = 0; v < kVectors; v += kTogether) {
    V acc[kTogether][MR];
#pragma GCC unroll 2
    for (int j = 0; j < kTogether; ++j) {
#pragma GCC unroll 8
      for (int r = 0; r < MR; ++r) acc[j][r] = hn::Zero(d);
    }
    const uint8_t* w = t.w;
    const float* a = t.a;
    for (int64_t chunk = 0; chunk < t.chunks; ++chunk) {
      V scale[kTogether], low[kTogether];
#pragma GCC unroll 2
      for (int j = 0; j < kTogether; ++j) {
        const int64_t at = chunk * kColumns + (v + j) * kWidth;
        scale[j] = kBits == 16 ? hn::Zero(d) : hn::LoadU(d, t.scales.scale + at);
        low[j] = kBits == 16    ? hn::Zero(d)
                 : t.scales.low ? hn::LoadU(d, t.scales.low + at)
                 : kBits == 4   ? hn::Mul(scale[j], hn::Set(d, float(t.offset)))
                                : hn::Zero(d);
      }
      for (int64_t step = 0; step < t.chunk / kSteps; ++step, w += kStepBytes, a += kSteps) {
        if constexpr (kBits == 16) {
          // Into the second cache and far: the loop alone has 16.9 GB/s from DRAM, 15.3 into the first by 1 KiB, 14.2
          // by none.
          __builtin_prefetch(w + kFarAhead, 0, 2);
        } else {
          hwy::Prefetch(w + kAhead);
          hwy::Prefetch(w + kAhead + 64);
        }
#pragma GCC unroll 2
        for (int j = 0; j < kTogether; ++j) Step<MR, kBits>(t, a, w, (v + j) * kWidth, scale[j], low[j], acc[j]);
      }
    }
#pragma GCC unroll 2
    for (int j = 0; j < kTogether; ++j) {
#pragma GCC unroll 8
      for (int r = 0; r < MR; ++r) hn::StoreU(acc[j][r], d, t.sums + r * kColumns + (v + j) * kWidth);
    }
  }
}

// 16 bits of two panels for a few rows: two streams, as in low_few_x86.cpp.
template <int MR>
void Pair16(const LowTile& t, const LowTile& u) {
  const D d;
  constexpr int kWidth = int(hn::MaxLanes(d)), kVectors = kColumns / kWidth, kTogether = kVectors < 2 ? 1 : 2;
  for (int v = 0; v < kVectors; v += kTogether) {
    V acc[kTogether][MR], more[kTogether][MR];
#pragma GCC unroll 2
    for (int j = 0; j < kTogether; ++j) {
#pragma GCC unroll 8
      for (int r = 0; r < MR; ++r) acc[j][r] = more[j][r] = hn::Zero(d);
    }
    const uint8_t *w = t.w, *w2 = u.w;
    const float* a = t.a;
    for (int64_t k = t.chunks * t.chunk; k > 0; --k, w += 64, w2 += 64, ++a) {
      hwy::Prefetch(w + kAhead);
      hwy::Prefetch(w2 + kAhead);
#pragma GCC unroll 2
      for (int j = 0; j < kTogether; ++j) {
        Step<MR, 16>(t, a, w, (v + j) * kWidth, hn::Zero(d), hn::Zero(d), acc[j]);
        Step<MR, 16>(t, a, w2, (v + j) * kWidth, hn::Zero(d), hn::Zero(d), more[j]);
      }
    }
#pragma GCC unroll 2
    for (int j = 0; j < kTogether; ++j) {
#pragma GCC unroll 8
      for (int r = 0; r < MR; ++r) {
        hn::StoreU(acc[j][r], d, t.sums + r * kColumns + (v + j) * kWidth);
        hn::StoreU(more[j][r], d, u.sums + r * kColumns + (v + j) * kWidth);
      }
    }
  }
}
void PairF32(const LowTile& t, const LowTile& u, int rows) {
  rows == 1 ? Pair16<1>(t, u) : rows == 2 ? Pair16<2>(t, u) : Pair16<3>(t, u);
}

template <int MR>
void OfBits(const LowTile& t) {
  if (t.bits == 16)
    Tile<MR, 16>(t);
  else if (t.bits == 8)
    Tile<MR, 8>(t);
  else
    Tile<MR, 4>(t);
}

void TileF32(const LowTile& t, int rows) {
  switch (rows) {
    case 1:
      return OfBits<1>(t);
    case 2:
      return OfBits<2>(t);
    case 3:
      return OfBits<3>(t);
    case 4:
      return OfBits<4>(t);
    case 5:
      return OfBits<5>(t);
    case 6:
      return OfBits<6>(t);
    case 7:
      return Tile<7, 16>(t);
    default:
      return Tile<8, 16>(t);
  }
}

void Signed(const uint8_t* panel, int64_t k, int bits, int offset, int8_t* to) {
  const hn::CappedTag<uint8_t, 64> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t n = int64_t(hn::Lanes(d)), step = kColumns * 4;
  if (bits == 8) {
    const auto flip = hn::Set(d, uint8_t(0x80));
    for (int64_t i = 0; i < k * kColumns; i += n)
      hn::StoreU(hn::BitCast(di, hn::Xor(hn::LoadU(d, panel + i), flip)), di, to + i);
    return;
  }
  const auto mask = hn::Set(d, uint8_t(15)), less = hn::Set(d, uint8_t(offset));
  for (int64_t s = 0; s < k / 8; ++s, panel += step, to += 2 * step) {
    for (int64_t i = 0; i < step; i += n) {
      const auto v = hn::LoadU(d, panel + i);
      hn::StoreU(hn::BitCast(di, hn::Sub(hn::And(v, mask), less)), di, to + i);
      hn::StoreU(hn::BitCast(di, hn::Sub(hn::ShiftRight<4>(v), less)), di, to + step + i);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(Scales);
HWY_EXPORT(Widen);
HWY_EXPORT(Quantize);
HWY_EXPORT(TileF32);
HWY_EXPORT(PairF32);
HWY_EXPORT(Signed);
}  // namespace

LowScaleForm low_form(const LowSources& from) {
  if (from.repeat != 1 || from.zero) return LowScaleForm::kConverted;
  if (!from.min && !from.super_scale && from.scale_bytes >= 2)
    return from.scale_bytes == 2 ? LowScaleForm::kF16 : LowScaleForm::kF32;
  if (from.min && from.super_scale && from.super_min && from.scale_bytes == 1 && from.min_bytes == 1 &&
      from.super_scale_bytes == 2 && from.super_min_bytes == 2 && from.super_groups == from.super_min_groups)
    return LowScaleForm::kSuper;
  return LowScaleForm::kConverted;
}
void low_scales(const LowSources& from, float* scale, float* low) { HWY_DYNAMIC_DISPATCH(Scales)(from, scale, low); }
void low_widen(const void* a, int64_t n, int kind, float* to) { HWY_DYNAMIC_DISPATCH(Widen)(a, n, kind, to); }
void low_quantize(const float* a, int64_t k, int64_t block, int64_t chunk, int offset, int8_t* levels, float* scale,
                  float* weighted, int32_t* start) {
  HWY_DYNAMIC_DISPATCH(Quantize)(a, k, block, chunk, offset, levels, scale, weighted, start);
}
// Written in order; the 16 fours of a line of each row are read while it is in the first cache.
void low_interleave(const int8_t* from, int64_t pitch, int64_t rows, int64_t k, int8_t* to) {
  for (int64_t i = 0; i < k; i += 4, from += 4) {
    const int8_t* four = from;
    for (int64_t r = 0; r < rows; ++r, four += pitch, to += 4) __builtin_memcpy(to, four, 4);
  }
}
void low_tile_f32(const LowTile& tile, int rows) { HWY_DYNAMIC_DISPATCH(TileF32)(tile, rows); }
void low_pair_f32(const LowTile& tile, const LowTile& other, int rows) {
  HWY_DYNAMIC_DISPATCH(PairF32)(tile, other, rows);
}
void low_signed_levels(const uint8_t* panel, int64_t k, int bits, int offset, int8_t* to) {
  HWY_DYNAMIC_DISPATCH(Signed)(panel, k, bits, offset, to);
}

}  // namespace ridgeline::cpu
#endif
