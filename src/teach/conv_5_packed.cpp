// 5. Packed: each strip of the image is copied once, with a border of zeros and rows of whole vectors, and the weights
// are copied in the order in which they are used.
//
// With the border in memory a tap at the edge is like any other: no ends to compute, no masks. The rows of a strip lie
// together on a few pages instead of some in each plane. The copy costs one read and one write of the image, against a
// reading for each channel of the result. The sums of a tile stand in a copy, too, until they are complete.
#include "teach/conv_steps.h"
//
#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "teach/conv_5_packed.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::teach {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Adds one channel to the sums of a tile: [4 channels of the result][6 rows][whole vectors].
void add_channel(const Conv& t, const float* plane, const float* weights, float* sums) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), row = packed_row(t), width = round_up(t.width, lanes);
  for (int64_t ky = 0; ky < t.kernel; ++ky) {
    for (int64_t kx = 0; kx < t.kernel; ++kx) {
      for (int64_t o = 0; o < kTileOuts; ++o) {
        const auto w = hn::Set(d, *weights++);
        for (int64_t y = 0; y < kStripRows; ++y) {
          const float* from = plane + (y + ky) * row + kx;
          float* to = sums + (o * kStripRows + y) * row;
          for (int64_t x = 0; x < width; x += lanes)
            hn::Store(hn::MulAdd(w, hn::LoadU(d, from + x), hn::Load(d, to + x)), d, to + x);
        }
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::teach
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::teach {
HWY_EXPORT(add_channel);

void conv_pack_weights(const Conv& t, float* to) {
  const int64_t taps = t.kernel * t.kernel, each = t.channels * taps;
  for (int64_t o0 = 0; o0 < t.outs; o0 += kTileOuts)
    for (int64_t i = 0; i < each; ++i)
      for (int64_t o = o0; o < o0 + kTileOuts; ++o) *to++ = o < t.outs ? t.w[o * each + i] : 0;
}

void conv_pack_strip(const Conv& t, int64_t y0, float* to) {
  std::fill_n(to, packed_strip(t), 0.0f);
  const int64_t first = std::max<int64_t>(0, y0 - t.pad()), last = std::min(t.height, y0 + kStripRows + t.pad());
  for (int64_t c = 0; c < t.channels; ++c)
    for (int64_t y = first; y < last; ++y)
      std::copy_n(t.x + (c * t.height + y) * t.width, t.width,
                  to + c * packed_plane(t) + (y - y0 + t.pad()) * packed_row(t) + t.pad());
}

void conv_5_packed(const Conv& t) {
  float *const weights = t.scratch, *const sums = weights + packed_weights(t), *const strip = sums + packed_sums(t);
  const int64_t tile_weights = kTileOuts * t.kernel * t.kernel;
  conv_pack_weights(t, weights);
  for (int64_t y0 = 0; y0 < t.height; y0 += kStripRows) {
    conv_pack_strip(t, y0, strip);
    for (int64_t o0 = 0; o0 < t.outs; o0 += kTileOuts) {
      std::fill_n(sums, packed_sums(t), 0.0f);
      for (int64_t c = 0; c < t.channels; ++c) HWY_DYNAMIC_DISPATCH(add_channel)
      (t, strip + c * packed_plane(t), weights + (o0 / kTileOuts * t.channels + c) * tile_weights, sums);
      for (int64_t o = o0; o < std::min(t.outs, o0 + kTileOuts); ++o)
        for (int64_t y = y0; y < std::min(t.height, y0 + kStripRows); ++y)
          std::copy_n(sums + ((o - o0) * kStripRows + y - y0) * packed_row(t), t.width,
                      t.y + (o * t.height + y) * t.width);
    }
  }
}

}  // namespace ridgeline::teach
#endif
