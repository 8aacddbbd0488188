// 7. Prefetching: while a channel is worked on, the rows of the next one are asked for.
//
// The rows of two channels lie a plane of the strip apart (3.5 KiB), so that a tile jumps three rows at each channel.
// The hardware sees the jumps of one size and often follows them, and after the first channels of the result the strip
// is in the second-level cache anyway, from where a line takes 14 cycles: less than the multiply-adds that are under
// way. What is left to gain is small, and a machine with a slower second level gains more.
#include "teach/conv_steps.h"
//
#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "teach/conv_7_prefetching.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::teach {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// The pixels x to x + 3 vectors of row y (of the strip), for the channels o0 to o0 + 3.
void tile(const Conv& t, const float* strip, const float* weights, int64_t o0, int64_t y0, int64_t y, int64_t x) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), row = packed_row(t), plane = packed_plane(t);
  hn::Vec<decltype(d)> sums[kTileOuts][3];
  for (auto& sum : sums) sum[0] = sum[1] = sum[2] = hn::Zero(d);
  for (int64_t c = 0; c < t.channels; ++c) {
    for (int64_t ky = 0; ky < t.kernel; ++ky) {
      const float* from = strip + c * plane + (y + ky) * row + x;
      // Past the last channel: read by nobody, and a prefetch has no faults.
      __builtin_prefetch(from + plane);
      __builtin_prefetch(from + plane + lanes);
      __builtin_prefetch(from + plane + 2 * lanes);
      for (int64_t kx = 0; kx < t.kernel; ++kx, ++from, weights += kTileOuts) {
        const auto x0 = hn::LoadU(d, from), x1 = hn::LoadU(d, from + lanes), x2 = hn::LoadU(d, from + 2 * lanes);
        for (int o = 0; o < kTileOuts; ++o) {
          const auto w = hn::Set(d, weights[o]);
          sums[o][0] = hn::MulAdd(w, x0, sums[o][0]);
          sums[o][1] = hn::MulAdd(w, x1, sums[o][1]);
          sums[o][2] = hn::MulAdd(w, x2, sums[o][2]);
        }
      }
    }
  }
  HWY_ALIGN float pixels[kTileOuts * 3 * kMostLanes];
  for (int o = 0; o < kTileOuts; ++o)
    for (int v = 0; v < 3; ++v) hn::Store(sums[o][v], d, pixels + (o * 3 + v) * lanes);
  for (int64_t o = 0; o < kTileOuts && o0 + o < t.outs; ++o)
    std::copy_n(pixels + o * 3 * lanes, std::min(t.width - x, 3 * lanes),
                t.y + ((o0 + o) * t.height + y0 + y) * t.width + x);
}

void convolve(const Conv& t, const float* strip, const float* weights, int64_t y0) {
  const int64_t width = 3 * int64_t(hn::Lanes(hn::ScalableTag<float>()));
  const int64_t tile_weights = kTileOuts * t.channels * t.kernel * t.kernel;
  for (int64_t o0 = 0; o0 < t.outs; o0 += kTileOuts, weights += tile_weights)
    for (int64_t y = 0; y < kStripRows && y0 + y < t.height; ++y)
      for (int64_t x = 0; x < t.width; x += width) tile(t, strip, weights, o0, y0, y, x);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::teach
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::teach {
HWY_EXPORT(convolve);

void conv_strips(const Conv& t, int64_t begin, int64_t end, const float* weights, float* strip) {
  for (int64_t y0 = begin * kStripRows; y0 < std::min(t.height, end * kStripRows); y0 += kStripRows) {
    conv_pack_strip(t, y0, strip);
    HWY_DYNAMIC_DISPATCH(convolve)(t, strip, weights, y0);
  }
}

void conv_7_prefetching(const Conv& t) {
  conv_pack_weights(t, t.scratch);
  conv_strips(t, 0, t.height, t.scratch, t.scratch + packed_weights(t) + packed_sums(t));
}

}  // namespace ridgeline::teach
#endif
