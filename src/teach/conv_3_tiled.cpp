// 3. Tiled: strips of 6 rows, and in each strip 4 channels of the result at a time.
//
// Before, the whole image passed for every channel of the result, and each plane of the result, which a first-level
// cache may just hold, was walked nine times a channel. The rows of a strip, of all channels, fit into the
// second-level cache and serve all channels of the result from there; the 4 x 6 rows that are being summed stay in the
// first-level cache (10 KiB) until they are complete.
#include "teach/conv_steps.h"

namespace ridgeline::teach {
namespace {

void rows(const Conv& t, int64_t o, int64_t c, int64_t y0, int64_t y1) {
  for (int64_t ky = 0; ky < t.kernel; ++ky) {
    const Inside inner = inside(t.height, ky, t.pad());
    for (int64_t kx = 0; kx < t.kernel; ++kx) {
      const float w = t.w[((o * t.channels + c) * t.kernel + ky) * t.kernel + kx];
      const Inside columns = inside(t.width, kx, t.pad());
      for (int64_t y = std::max(y0, inner.begin); y < std::min(y1, inner.end); ++y) {
        const float* from = t.x + (c * t.height + y + ky - t.pad()) * t.width + kx - t.pad();
        float* __restrict to = t.y + (o * t.height + y) * t.width;
        for (int64_t x = columns.begin; x < columns.end; ++x) to[x] += w * from[x];
      }
    }
  }
}

}  // namespace

void conv_3_tiled(const Conv& t) {
  std::fill_n(t.y, t.outs * t.height * t.width, 0.0f);
  for (int64_t y0 = 0; y0 < t.height; y0 += kStripRows) {
    const int64_t y1 = std::min(t.height, y0 + kStripRows);
    for (int64_t o0 = 0; o0 < t.outs; o0 += kTileOuts) {
      for (int64_t c = 0; c < t.channels; ++c) {
        for (int64_t o = o0; o < std::min(t.outs, o0 + kTileOuts); ++o) rows(t, o, c, y0, y1);
      }
    }
  }
}

}  // namespace ridgeline::teach
