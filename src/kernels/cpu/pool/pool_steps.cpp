#include "kernels/cpu/pool/pool_steps.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool/pool_steps.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/masked_inl.h"

#include "kernels/cpu/elementwise/block_io-inl.h"
#include "kernels/cpu/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

template <bool kMax>
HWY_INLINE VF start() {
  return kMax ? hn::Neg(hn::Inf(F32())) : hn::Zero(F32());
}
/// A NaN that is in stays in: the accumulator is asked for, the new element comes second.
template <bool kMax>
HWY_INLINE VF fold2(VF so_far, VF x) {
  if constexpr (kMax)
    return max_nan(so_far, x);
  else
    return hn::Add(so_far, x);
}

/// Elements of a type that f32 holds, a vector of them at a time. Bytes and bf16 go through f32 and come back exactly:
/// bf16 sums are rounded once, to even.
template <typename T>
struct Element {  // bytes
  static HWY_INLINE VF load(const T* p) {
    const F32 d;
    return hn::ConvertTo(d, hn::PromoteTo(hn::RebindToSigned<F32>(), hn::LoadU(hn::Rebind<T, F32>(), p)));
  }
  static HWY_INLINE void store(VF v, T* p) {
    const hn::RebindToSigned<F32> di;
    const hn::Rebind<T, F32> d8;
    hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, v)), d8, p);
  }
  static float number(T x) { return float(x); }
  static T stored(float x) { return x < 0 && T(-1) > 0 ? T(0) : x < -128 ? T(-128) : T(x); }  // no taps: -inf
};
template <>
struct Element<uint16_t> {  // bf16
  static HWY_INLINE VF load(const uint16_t* p) {
    const F32 d;
    const hn::RebindToUnsigned<F32> du;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, F32>(), p))));
  }
  static HWY_INLINE void store(VF v, uint16_t* p) {
    const hn::RebindToUnsigned<F32> du;
    const hn::Rebind<uint16_t, F32> d16;
    hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(hn::BitCast(du, round_bf16_bits(v)))), d16, p);
  }
  static float number(uint16_t x) { return widen_bf16(x); }
  static uint16_t stored(float x) {
    return uint16_t(hn::GetLane(hn::BitCast(hn::RebindToUnsigned<F32>(), round_bf16_bits(splat(x)))) >> 16);
  }
};

template <bool kMax>
HWY_INLINE float fold1(float so_far, float x) {
  if constexpr (kMax)
    return x > so_far || x != x ? x : so_far;
  else
    return so_far + x;
}

template <bool kMax, typename T>
void narrow_lanes_of(const T* x, const int64_t* offsets, int64_t taps, T* y, int64_t lanes, float factor) {
  using E = Element<T>;
  int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const int64_t width = int64_t(hn::Lanes(F32()));
  const VF times = splat(factor);
  auto finish = [&](VF v) HWY_ATTR { return kMax ? v : hn::Mul(v, times); };
  for (; j + 2 * width <= lanes; j += 2 * width) {
    VF a = start<kMax>(), b = a;
    for (int64_t t = 0; t < taps; ++t) {
      const T* p = x + offsets[t] + j;
      a = fold2<kMax>(a, E::load(p));
      b = fold2<kMax>(b, E::load(p + width));
    }
    E::store(finish(a), y + j);
    E::store(finish(b), y + j + width);
  }
  for (; j + width <= lanes; j += width) {
    VF a = start<kMax>();
    for (int64_t t = 0; t < taps; ++t) a = fold2<kMax>(a, E::load(x + offsets[t] + j));
    E::store(finish(a), y + j);
  }
#endif
  for (; j < lanes; ++j) {
    float v = kMax ? -__builtin_inff() : 0.0f;
    for (int64_t t = 0; t < taps; ++t) v = fold1<kMax>(v, E::number(x[offsets[t] + j]));
    y[j] = E::stored(kMax ? v : v * factor);
  }
}

/// Means of planes of channels last, in bf16.
void narrow_columns_of(const uint16_t* x, int64_t step, int64_t n, uint16_t* y, int64_t lanes, float factor) {
  using E = Element<uint16_t>;
  int64_t j = 0;
#if HWY_TARGET != HWY_SCALAR
  const int64_t width = int64_t(hn::Lanes(F32()));
  for (; j + width <= lanes; j += width) {
    VF a = hn::Zero(F32()), b = a;
    int64_t k = 0;
    for (; k + 2 <= n; k += 2) {
      a = hn::Add(a, E::load(x + k * step + j));
      b = hn::Add(b, E::load(x + (k + 1) * step + j));
    }
    if (k < n) a = hn::Add(a, E::load(x + k * step + j));
    E::store(hn::Mul(hn::Add(a, b), splat(factor)), y + j);
  }
#endif
  for (; j < lanes; ++j) {
    float v = 0;
    for (int64_t k = 0; k < n; ++k) v += E::number(x[k * step + j]);
    y[j] = E::stored(v * factor);
  }
}

template <bool kMax>
void lanes_of(const float* x, const int64_t* offsets, int64_t taps, float* y, int64_t lanes, float factor) {
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d));
  const VF times = splat(factor);
  auto finish = [&](VF v) HWY_ATTR { return kMax ? v : hn::Mul(v, times); };
  int64_t j = 0;
  for (; j + 4 * width <= lanes; j += 4 * width) {  // four chains hide the latency of the fold
    VF a = start<kMax>(), b = a, c = a, e = a;
    for (int64_t t = 0; t < taps; ++t) {
      const float* p = x + offsets[t] + j;
      a = fold2<kMax>(a, hn::LoadU(d, p));
      b = fold2<kMax>(b, hn::LoadU(d, p + width));
      c = fold2<kMax>(c, hn::LoadU(d, p + 2 * width));
      e = fold2<kMax>(e, hn::LoadU(d, p + 3 * width));
    }
    hn::StoreU(finish(a), d, y + j);
    hn::StoreU(finish(b), d, y + j + width);
    hn::StoreU(finish(c), d, y + j + 2 * width);
    hn::StoreU(finish(e), d, y + j + 3 * width);
  }
  for (; j < lanes; j += width) {
    const auto mask = hn::FirstN(d, size_t(lanes - j < width ? lanes - j : width));
    VF a = start<kMax>();
    for (int64_t t = 0; t < taps; ++t) a = fold2<kMax>(a, LoadMasked(mask, d, x + offsets[t] + j));
    hn::BlendedStore(finish(a), mask, d, y + j);
  }
}

template <bool kMax, class Load>
HWY_INLINE VF window(const float* const* rows, int64_t row_count, int64_t taps, int64_t dilation, int64_t at,
                     Load load) {
  VF v = start<kMax>();
  for (int64_t r = 0; r < row_count; ++r)
    for (int64_t t = 0; t < taps; ++t) v = fold2<kMax>(v, load(rows[r] + at + t * dilation));
  return v;
}

template <bool kMax>
void row_of(const float* const* rows, int64_t row_count, int64_t taps, int64_t stride, int64_t dilation, float* y,
            int64_t count) {
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d));
  int64_t o = 0;
  if (stride == 1) {
    for (; o + width <= count; o += width)
      hn::StoreU(
          window<kMax>(rows, row_count, taps, dilation, o, [&](const float* p) HWY_ATTR { return hn::LoadU(d, p); }), d,
          y + o);
  }
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  if (stride == 2) {
    // Every second of 31 numbers, which lie within the row: the last tap's last element is its end. (LoadInterleaved2
    // reads 32.) Two loads overlap by one element.
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31);
    for (; o + width <= count; o += width) {
      hn::StoreU(window<kMax>(rows, row_count, taps, dilation, o * 2,
                              [&](const float* p) HWY_ATTR {
                                const __m512 low = _mm512_loadu_ps(p), high = _mm512_loadu_ps(p + 15);
                                return VF{_mm512_permutex2var_ps(low, even, high)};
                              }),
                 d, y + o);
    }
  }
#endif
  for (; o < count; ++o) {
    float v = kMax ? -__builtin_inff() : 0.0f;
    for (int64_t r = 0; r < row_count; ++r) {
      for (int64_t t = 0; t < taps; ++t) {
        const float x = rows[r][o * stride + t * dilation];
        if constexpr (kMax)
          v = x > v || x != x ? x : v;
        else
          v += x;
      }
    }
    y[o] = v;
  }
}

template <bool kMax>
double plane_of(const float* x, int64_t n) {
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d));
  constexpr int64_t kPiece = 4096;
  double total = kMax ? -double(__builtin_inff()) : 0;
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t count = n - at < kPiece ? n - at : kPiece;
    const float* p = x + at;
    VF a = start<kMax>(), b = a;
    int64_t i = 0;
    for (; i + 2 * width <= count; i += 2 * width) {
      a = fold2<kMax>(a, hn::LoadU(d, p + i));
      b = fold2<kMax>(b, hn::LoadU(d, p + i + width));
    }
    HWY_ALIGN float lanes[HWY_MAX_BYTES / 4];
    hn::Store(fold2<kMax>(a, b), d, lanes);
    float v = lanes[0];
    auto join = [&](float other) {
      if constexpr (kMax)
        v = other > v || other != other ? other : v;
      else
        v += other;
    };
    for (int64_t k = 1; k < width; ++k) join(lanes[k]);
    for (; i < count; ++i) join(p[i]);
    if constexpr (kMax)
      total = double(v) > total || v != v ? double(v) : total;
    else
      total += double(v);
  }
  return total;
}

template <bool kMax>
void columns_of(const float* x, int64_t step, int64_t n, float* y, int64_t lanes) {
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d));
  for (int64_t j = 0; j < lanes; j += width) {
    const auto mask = hn::FirstN(d, size_t(lanes - j < width ? lanes - j : width));
    VF a = start<kMax>(), b = a, c = a, e = a;
    int64_t k = 0;
    for (; k + 4 <= n; k += 4) {
      const float* p = x + k * step + j;
      a = fold2<kMax>(a, LoadMasked(mask, d, p));
      b = fold2<kMax>(b, LoadMasked(mask, d, p + step));
      c = fold2<kMax>(c, LoadMasked(mask, d, p + 2 * step));
      e = fold2<kMax>(e, LoadMasked(mask, d, p + 3 * step));
    }
    for (; k < n; ++k) a = fold2<kMax>(a, LoadMasked(mask, d, x + k * step + j));
    hn::BlendedStore(fold2<kMax>(fold2<kMax>(a, b), fold2<kMax>(c, e)), mask, d, y + j);
  }
}

void fold_lanes(const float* x, const int64_t* offsets, int64_t taps, float* y, int64_t lanes, int fold, float factor) {
  if (fold == int(PoolFold::kMax))
    lanes_of<true>(x, offsets, taps, y, lanes, factor);
  else
    lanes_of<false>(x, offsets, taps, y, lanes, factor);
}
void fold_narrow(DType dtype, const void* x, const int64_t* offsets, int64_t taps, void* y, int64_t lanes, int fold,
                 float factor) {
  const bool max = fold == int(PoolFold::kMax);
  if (dtype == DType::kU8)
    narrow_lanes_of<true>(static_cast<const uint8_t*>(x), offsets, taps, static_cast<uint8_t*>(y), lanes, factor);
  else if (dtype == DType::kI8)
    narrow_lanes_of<true>(static_cast<const int8_t*>(x), offsets, taps, static_cast<int8_t*>(y), lanes, factor);
  else if (max)
    narrow_lanes_of<true>(static_cast<const uint16_t*>(x), offsets, taps, static_cast<uint16_t*>(y), lanes, factor);
  else
    narrow_lanes_of<false>(static_cast<const uint16_t*>(x), offsets, taps, static_cast<uint16_t*>(y), lanes, factor);
}
void fold_row(const float* const* rows, int64_t row_count, int64_t taps, int64_t stride, int64_t dilation, float* y,
              int64_t count, int fold) {
  if (fold == int(PoolFold::kMax))
    row_of<true>(rows, row_count, taps, stride, dilation, y, count);
  else
    row_of<false>(rows, row_count, taps, stride, dilation, y, count);
}
double fold_plane(const float* x, int64_t n, int fold) {
  return fold == int(PoolFold::kMax) ? plane_of<true>(x, n) : plane_of<false>(x, n);
}
void fold_columns(const float* x, int64_t step, int64_t n, float* y, int64_t lanes, int fold) {
  if (fold == int(PoolFold::kMax))
    columns_of<true>(x, step, n, y, lanes);
  else
    columns_of<false>(x, step, n, y, lanes);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {

HWY_EXPORT(fold_lanes);
HWY_EXPORT(fold_narrow);
HWY_EXPORT(narrow_columns_of);
HWY_EXPORT(fold_row);
HWY_EXPORT(fold_plane);
HWY_EXPORT(fold_columns);

void pool_lanes(const float* x, const int64_t* offsets, int64_t taps, float* y, int64_t lanes, PoolFold fold,
                float factor) {
  HWY_DYNAMIC_DISPATCH(fold_lanes)(x, offsets, taps, y, lanes, int(fold), factor);
}
void pool_lanes_narrow(DType dtype, const void* x, const int64_t* offsets, int64_t taps, void* y, int64_t lanes,
                       PoolFold fold, float factor) {
  HWY_DYNAMIC_DISPATCH(fold_narrow)(dtype, x, offsets, taps, y, lanes, int(fold), factor);
}
void mean_columns_bf16(const uint16_t* x, int64_t step, int64_t n, uint16_t* y, int64_t lanes, float factor) {
  HWY_DYNAMIC_DISPATCH(narrow_columns_of)(x, step, n, y, lanes, factor);
}
void pool_row(const float* const* rows, int64_t row_count, int64_t taps, int64_t stride, int64_t dilation, float* y,
              int64_t count, PoolFold fold) {
  HWY_DYNAMIC_DISPATCH(fold_row)(rows, row_count, taps, stride, dilation, y, count, int(fold));
}
double pool_plane(const float* x, int64_t n, PoolFold fold) {
  return HWY_DYNAMIC_DISPATCH(fold_plane)(x, n, int(fold));
}
void pool_columns(const float* x, int64_t step, int64_t n, float* y, int64_t lanes, PoolFold fold) {
  HWY_DYNAMIC_DISPATCH(fold_columns)(x, step, n, y, lanes, int(fold));
}

}  // namespace ridgeline::cpu
#endif
