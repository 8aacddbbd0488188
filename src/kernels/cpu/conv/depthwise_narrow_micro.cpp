#include "kernels/cpu/conv/depthwise_narrow_micro.h"

#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/depthwise_narrow_micro.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;
constexpr int kColumns = 32;  // of a row of sums

// Widened to f32. The last channels of a pixel go through a copy: what lies beside them may be no one's.
template <typename T>
HWY_INLINE hn::Vec<hn::Rebind<T, DF>> LoadCount(const T* from, int64_t count) {
  const hn::Rebind<T, DF> d;
  if (count >= int64_t(hn::Lanes(d))) return hn::LoadU(d, from);
  alignas(64) T lanes[16] = {};
  std::memcpy(lanes, from, size_t(count) * sizeof(T));
  return hn::Load(d, lanes);
}
HWY_INLINE VF Widened(const uint16_t* from, int64_t count) {
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<DF>(), LoadCount(from, count))));
}
template <typename T>
HWY_INLINE VF Widened(const T* from, int64_t count) {
  return hn::ConvertTo(DF(), hn::PromoteTo(DI(), LoadCount(from, count)));
}

template <typename T>
HWY_INLINE VF LoadX(const NarrowPixels& g, const T* from, int64_t count, VF zero) {
  const VF x = Widened(from, count);
  return sizeof(T) == 1 ? hn::Sub(x, zero) : x;
}

template <int P, int... i>
HWY_INLINE void StoreSums(const NarrowPixels& g, const VF (&sum)[P], int64_t pixel, int64_t channel,
                          std::integer_sequence<int, i...>) {
  const auto store = [&](VF v, int64_t p) HWY_ATTR {
    const int64_t at = p * kColumns + channel;
    if (g.integers)
      hn::StoreU(hn::NearestInt(v), DI(), static_cast<int32_t*>(g.sums) + at);
    else
      hn::StoreU(v, DF(), static_cast<float*>(g.sums) + at);
  };
  (store(sum[i], pixel + i), ...);
}

/// P pixels, one vector of channels, any taps.
template <typename T, int P, int... i>
HWY_INLINE void AnyTaps(const NarrowPixels& g, int64_t pixel, int64_t channel, int64_t count,
                        std::integer_sequence<int, i...> all) {
  const DF d;
  const VF zero = hn::Set(d, g.zero);
  VF sum[P];
  ((sum[i] = hn::Zero(d)), ...);
  for (int64_t ky = 0; ky < g.taps_h; ++ky) {
    for (int64_t kx = 0; kx < g.taps_w; ++kx) {
      const T* x = static_cast<const T*>(g.x) + pixel * g.x_step + ky * g.row_step + kx * g.tap_step + channel;
      const VF w = hn::LoadU(d, g.w + ky * g.weight_row + kx * g.weight_step + channel);
      ((sum[i] = hn::MulAdd(LoadX<T>(g, x + i * g.x_step, count, zero), w, sum[i])), ...);
    }
  }
  StoreSums<P>(g, sum, pixel, channel, all);
}

/// One column of x goes to every output that has a tap on it.
template <int P, int kTaps, int kColumn, int... i>
HWY_INLINE void Spread(VF x, const VF (&w)[kTaps], VF (&sum)[P], std::integer_sequence<int, i...>) {
  ((kColumn - i >= 0 && kColumn - i < kTaps
        ? void(sum[i] = hn::MulAdd(x, w[kColumn - i >= 0 && kColumn - i < kTaps ? kColumn - i : 0], sum[i]))
        : void()),
   ...);
}
template <typename T, int P, int kTaps, int... column>
HWY_INLINE void SlideRow(const NarrowPixels& g, const T* x, const float* weights, int64_t count, VF zero, VF (&sum)[P],
                         std::integer_sequence<int, column...>) {
  VF w[kTaps];
  ((column < kTaps ? void(w[column % kTaps] = hn::LoadU(DF(), weights + (column % kTaps) * g.weight_step)) : void()),
   ...);
  (Spread<P, kTaps, column>(LoadX<T>(g, x + column * g.tap_step, count, zero), w, sum,
                            std::make_integer_sequence<int, P>{}),
   ...);
}

/// P pixels a column apart: kTaps + P - 1 columns of x are loaded for each row instead of kTaps * P.
template <typename T, int P, int kTaps>
HWY_INLINE void Slide(const NarrowPixels& g, int64_t pixel, int64_t channel, int64_t count) {
  const VF zero = hn::Set(DF(), g.zero);
  VF sum[P];
  for (int i = 0; i < P; ++i) sum[i] = hn::Zero(DF());
  for (int64_t ky = 0; ky < g.taps_h; ++ky) {
    SlideRow<T, P, kTaps>(g, static_cast<const T*>(g.x) + pixel * g.x_step + ky * g.row_step + channel,
                          g.w + ky * g.weight_row + channel, count, zero, sum,
                          std::make_integer_sequence<int, P + kTaps - 1>{});
  }
  StoreSums<P>(g, sum, pixel, channel, std::make_integer_sequence<int, P>{});
}

template <typename T, int P>
HWY_INLINE void Tile(const NarrowPixels& g, int64_t pixel) {
  const int64_t n = int64_t(hn::Lanes(DF()));
  for (int64_t c = 0; c < g.channels; c += n) {
    const int64_t count = g.channels - c < n ? g.channels - c : n;
    if (P > 1 && g.sliding && g.taps_w == 3)
      Slide<T, P, 3>(g, pixel, c, count);
    else if (P > 1 && g.sliding && g.taps_w == 5)
      Slide<T, P, 5>(g, pixel, c, count);
    else
      AnyTaps<T, P>(g, pixel, c, count, std::make_integer_sequence<int, P>{});
  }
}

template <typename T>
void PixelsOf(const NarrowPixels& g) {
  int64_t p = 0;
  for (; p + 8 <= g.pixels; p += 8) Tile<T, 8>(g, p);
  for (; p + 4 <= g.pixels; p += 4) Tile<T, 4>(g, p);
  for (; p < g.pixels; ++p) Tile<T, 1>(g, p);
}

void Pixels(const NarrowPixels& g) {
  switch (g.dtype) {
    case DType::kBF16:
      return PixelsOf<uint16_t>(g);
    case DType::kU8:
      return PixelsOf<uint8_t>(g);
    default:
      return PixelsOf<int8_t>(g);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(Pixels);
}  // namespace
void narrow_pixels(const NarrowPixels& g) { HWY_DYNAMIC_DISPATCH(Pixels)(g); }
}  // namespace ridgeline::cpu
#endif
