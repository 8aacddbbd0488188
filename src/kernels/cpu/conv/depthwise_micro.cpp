#include "kernels/cpu/conv/depthwise_micro.h"

#include <cstring>

#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/depthwise_micro.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <utility>

#include "kernels/cpu/conv/vector_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

// As in direct_micro.cpp, sums are addressed by constants alone, so that they live in registers.

template <int T, int N, bool kTail, int... i>
HWY_INLINE void Tap(V (&sum)[T * N], const float* x, int64_t step, const float* w, int64_t tail,
                    std::integer_sequence<int, i...>) {
  V weight[N];
  ((i < N ? void(weight[i % N] = hn::LoadU(d, w + (i % N) * kLanes)) : void()), ...);
  (Accumulate(sum[i], kTail ? LoadFirst(x + (i / N) * step, tail) : hn::LoadU(d, x + (i / N) * step + (i % N) * kLanes),
              weight[i % N]),
   ...);
}

/// T pixels by N vectors of channels; kTail: the one vector has `tail` channels.
template <int T, int N, bool kTail, int... i>
HWY_INLINE void PixelTile(const DepthwisePixels& g, int64_t pixel, int64_t channel, int64_t tail,
                          std::integer_sequence<int, i...> all) {
  V sum[T * N];
  ((sum[i] = hn::Zero(d)), ...);
  const float* rows = g.x + pixel * g.x_step + channel;
  const float* w = g.w + channel;
  for (int64_t ky = 0; ky < g.taps_h; ++ky, rows += g.row_step, w += g.weight_row)
    for (int64_t kx = 0; kx < g.taps_w; ++kx)
      Tap<T, N, kTail>(sum, rows + kx * g.tap_step, g.x_step, w + kx * g.weight_step, tail, all);
  const V low = hn::Set(d, g.low), high = hn::Set(d, g.high);
  const int64_t count = kTail ? tail : kLanes;
  const auto store = [&](V v, int64_t t, int64_t n) {
    const int64_t at = channel + n * kLanes;
    if (g.bias) v = hn::Add(v, LoadFirst(g.bias + at, count));
    if (g.residual) v = hn::Add(v, LoadFirst(g.residual + (pixel + t) * g.residual_step + at, count));
    StoreFirst(Clamp(v, low, high), g.y + (pixel + t) * g.y_step + at, count);
  };
  (store(sum[i], i / N, i % N), ...);
}

template <int T, int N>
HWY_INLINE void Channels(const DepthwisePixels& g, int64_t pixel) {
  int64_t c = 0;
  for (; c + N * kLanes <= g.channels; c += N * kLanes)
    PixelTile<T, N, false>(g, pixel, c, kLanes, std::make_integer_sequence<int, T * N>{});
  for (; c + kLanes <= g.channels; c += kLanes)
    PixelTile<T, 1, false>(g, pixel, c, kLanes, std::make_integer_sequence<int, T>{});
  if (c < g.channels) PixelTile<T, 1, true>(g, pixel, c, g.channels - c, std::make_integer_sequence<int, T>{});
}

void Pixels(const DepthwisePixels& g) {
  int64_t p = 0;
  for (; p + 8 <= g.pixels; p += 8) Channels<8, 1>(g, p);
  for (; p + 4 <= g.pixels; p += 4) Channels<4, 2>(g, p);
  for (; p + 2 <= g.pixels; p += 2) Channels<2, 4>(g, p);
  for (; p < g.pixels; ++p) Channels<1, 4>(g, p);
}

template <int T, int... i>
HWY_INLINE void VectorTile(const DepthwiseVectors& g, std::integer_sequence<int, i...>) {
  V sum[T];
  ((sum[i] = hn::Set(d, g.bias)), ...);
  for (int64_t k = 0; k < g.taps; ++k) {
    const V w = hn::Set(d, g.w[k]);
    const float* x = g.x + g.offset[k];
    (Accumulate(sum[i], hn::LoadU(d, x + i * g.x_step), w), ...);
  }
  const V low = hn::Set(d, g.low), high = hn::Set(d, g.high);
  const auto store = [&](V v, int64_t t) {
    const int64_t lanes = t == T - 1 ? g.lanes_of_last : g.lanes;
    if (g.residual) v = hn::Add(v, LoadFirst(g.residual + t * g.residual_step, lanes));
    StoreFirst(Clamp(v, low, high), g.y + t * g.y_step, lanes);
  };
  (store(sum[i], i), ...);
}

void Vectors(const DepthwiseVectors& g) {
  switch (g.count) {
    case 1:
      return VectorTile<1>(g, std::make_integer_sequence<int, 1>{});
    case 2:
      return VectorTile<2>(g, std::make_integer_sequence<int, 2>{});
    case 3:
      return VectorTile<3>(g, std::make_integer_sequence<int, 3>{});
    case 4:
      return VectorTile<4>(g, std::make_integer_sequence<int, 4>{});
    case 5:
      return VectorTile<5>(g, std::make_integer_sequence<int, 5>{});
    case 6:
      return VectorTile<6>(g, std::make_integer_sequence<int, 6>{});
    case 7:
      return VectorTile<7>(g, std::make_integer_sequence<int, 7>{});
    default:
      return VectorTile<8>(g, std::make_integer_sequence<int, 8>{});
  }
}

void Pick(const float* from, int64_t step, int64_t n, float* to) {
  int64_t i = 0;
  if (step == 2) {
    // One float less than two vectors would be enough for the last of them: stop before it.
    for (; i + kLanes < n; i += kLanes) {
      V even, odd;
      hn::LoadInterleaved2(d, from + 2 * i, even, odd);
      hn::StoreU(even, d, to + i);
    }
  }
  for (; i < n; ++i) to[i] = from[i * step];
}

void Interleave(const float* a, const float* b, int64_t n, float* to) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) hn::StoreInterleaved2(hn::LoadU(d, a + i), hn::LoadU(d, b + i), d, to + 2 * i);
  for (; i < n; ++i) to[2 * i] = a[i], to[2 * i + 1] = b[i];
}

int LaneCount() { return kLanes; }

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(Pixels);
HWY_EXPORT(Vectors);
HWY_EXPORT(Pick);
HWY_EXPORT(Interleave);
HWY_EXPORT(LaneCount);
}  // namespace
void depthwise_pixels(const DepthwisePixels& g) { HWY_DYNAMIC_DISPATCH(Pixels)(g); }
void depthwise_vectors(const DepthwiseVectors& g) { HWY_DYNAMIC_DISPATCH(Vectors)(g); }
void pick_every(const float* from, int64_t step, int64_t n, float* to) {
  if (step == 1)
    std::memcpy(to, from, size_t(n) * sizeof(float));
  else
    HWY_DYNAMIC_DISPATCH(Pick)(from, step, n, to);
}
void interleave2(const float* a, const float* b, int64_t n, float* to) {
  HWY_DYNAMIC_DISPATCH(Interleave)(a, b, n, to);
}
int depthwise_lanes() { return HWY_DYNAMIC_DISPATCH(LaneCount)(); }
}  // namespace ridgeline::cpu
#endif
