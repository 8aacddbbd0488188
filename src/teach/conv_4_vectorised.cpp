// 4. Vectorised: the same loops on the widest registers that the machine has (16 floats with AVX-512, 8 with AVX2),
// multiplied and added by one instruction.
//
// A row's end is no multiple of the vector's width: the last vector is masked, lanes beyond the row are neither read
// nor written. As the rows begin one float further on for each tap, most vectors of the image lie across two lines of
// the cache, which takes two loads.
#include "teach/conv_steps.h"
//
#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "teach/conv_4_vectorised.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/masked_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::teach {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void row(const float* from, float w, float* to, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto weight = hn::Set(d, w);  // in all lanes
  int64_t x = 0;
  for (; x + lanes <= n; x += lanes)
    hn::StoreU(hn::MulAdd(weight, hn::LoadU(d, from + x), hn::LoadU(d, to + x)), d, to + x);
  if (x == n) return;
  const auto rest = hn::FirstN(d, size_t(n - x));
  const auto sum = cpu::HWY_NAMESPACE::LoadMasked(rest, d, to + x);
  hn::BlendedStore(hn::MulAdd(weight, cpu::HWY_NAMESPACE::LoadMasked(rest, d, from + x), sum), rest, d, to + x);
}

void rows(const Conv& t, int64_t o, int64_t c, int64_t y0, int64_t y1) {
  for (int64_t ky = 0; ky < t.kernel; ++ky) {
    const Inside inner = inside(t.height, ky, t.pad());
    for (int64_t kx = 0; kx < t.kernel; ++kx) {
      const float w = t.w[((o * t.channels + c) * t.kernel + ky) * t.kernel + kx];
      const Inside columns = inside(t.width, kx, t.pad());
      for (int64_t y = std::max(y0, inner.begin); y < std::min(y1, inner.end); ++y) {
        const float* from = t.x + (c * t.height + y + ky - t.pad()) * t.width + kx - t.pad();
        float* to = t.y + (o * t.height + y) * t.width;
        row(from + columns.begin, w, to + columns.begin, columns.end - columns.begin);
      }
    }
  }
}

void convolve(const Conv& t) {
  for (int64_t y0 = 0; y0 < t.height; y0 += kStripRows)
    for (int64_t o0 = 0; o0 < t.outs; o0 += kTileOuts)
      for (int64_t c = 0; c < t.channels; ++c)
        for (int64_t o = o0; o < std::min(t.outs, o0 + kTileOuts); ++o)
          rows(t, o, c, y0, std::min(t.height, y0 + kStripRows));
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::teach
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::teach {
HWY_EXPORT(convolve);
void conv_4_vectorised(const Conv& t) {
  std::fill_n(t.y, t.outs * t.height * t.width, 0.0f);
  HWY_DYNAMIC_DISPATCH(convolve)(t);
}
}  // namespace ridgeline::teach
#endif
