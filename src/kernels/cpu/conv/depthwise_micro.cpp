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

HWY_INLINE void Finish(const DepthwisePixels& g, V v, int64_t pixel, int64_t channel, int64_t count) {
  if (g.bias) v = hn::Add(v, LoadFirst(g.bias + channel, count));
  if (g.residual) v = hn::Add(v, LoadFirst(g.residual + pixel * g.residual_step + channel, count));
  StoreFirst(Clamp(v, hn::Set(d, g.low), hn::Set(d, g.high)), g.y + pixel * g.y_step + channel, count);
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
  (Finish(g, sum[i], pixel + i / N, channel + (i % N) * kLanes, kTail ? tail : kLanes), ...);
}

template <int K, int k>
HWY_INLINE void AddTap(V& sum, V x, const V (&w)[K]) {
  if constexpr (k >= 0 && k < K) Accumulate(sum, x, w[k]);
}
template <int K, int kStride, int j, int... t>
HWY_INLINE void AddPixel(V (&sum)[sizeof...(t)], V x, const V (&w)[K], std::integer_sequence<int, t...>) {
  (AddTap<K, j - t * kStride>(sum[t], x, w), ...);
}
template <int K, int kStride, int T, int... j>
HWY_INLINE void AddRow(V (&sum)[T], const float* x, int64_t step, const V (&w)[K], std::integer_sequence<int, j...>) {
  (AddPixel<K, kStride, j>(sum, hn::LoadU(d, x + j * step), w, std::make_integer_sequence<int, T>{}), ...);
}

/// T pixels by one vector of channels, rows of K taps, neighbours kStride pixels apart: each pixel is loaded once a row
/// for all taps that meet it, where PixelTile loads it for each (9 loads for 8 multiply-adds). Pixel by pixel the lines
/// of some thirty streams are asked for, more than the hardware follows: those of the rows that come are fetched.
template <int T, int K, int kStride, int... t>
HWY_INLINE void ReuseTile(const DepthwisePixels& g, int64_t pixel, int64_t channel, std::integer_sequence<int, t...>) {
  V sum[T], w[K];
  ((sum[t] = hn::Zero(d)), ...);
  const float* row = g.x + pixel * g.x_step + channel;
  const float* taps = g.w + channel;
  for (int64_t ky = 0; ky < g.taps_h; ++ky, row += g.row_step, taps += g.weight_row) {
    for (int k = 0; k < K; ++k) w[k] = hn::LoadU(d, taps + k * g.weight_step);
    AddRow<K, kStride>(sum, row, g.tap_step, w, std::make_integer_sequence<int, (T - 1) * kStride + K>{});
  }
  for (int64_t ahead = 0; ahead < kStride; ++ahead, row += g.row_step)
    for (int p = 0; p < T * kStride; ++p) __builtin_prefetch(row + p * g.tap_step);
  (Finish(g, sum[t], pixel + t, channel, kLanes), ...);
}

template <int T, int K, int kStride>
HWY_INLINE void ReuseChannels(const DepthwisePixels& g, int64_t pixel) {
  int64_t c = 0;
  for (; c + kLanes <= g.channels; c += kLanes)
    ReuseTile<T, K, kStride>(g, pixel, c, std::make_integer_sequence<int, T>{});
  if (c < g.channels) PixelTile<T, 1, true>(g, pixel, c, g.channels - c, std::make_integer_sequence<int, T>{});
}

template <int K, int kStride>
void ReusePixels(const DepthwisePixels& g) {
  int64_t p = 0;
  for (; p + 8 <= g.pixels; p += 8) ReuseChannels<8, K, kStride>(g, p);
  for (; p + 4 <= g.pixels; p += 4) ReuseChannels<4, K, kStride>(g, p);
  for (; p < g.pixels; ++p) ReuseChannels<1, K, kStride>(g, p);
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
  if (g.x_step == g.tap_step) {
    if (g.taps_w == 3) return ReusePixels<3, 1>(g);
    if (g.taps_w == 5) return ReusePixels<5, 1>(g);
    if (g.taps_w == 7) return ReusePixels<7, 1>(g);
  } else if (g.x_step == 2 * g.tap_step) {
    if (g.taps_w == 3) return ReusePixels<3, 2>(g);
    if (g.taps_w == 5) return ReusePixels<5, 2>(g);
  }
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
