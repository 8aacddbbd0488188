// 2. Reordered: the pixels of a row become the innermost loop; channels and taps go outside.
//
// A tap's weight is now one number for a whole row, and the row of the image and that of the result are walked from one
// neighbour to the next: lines are used whole, the compiler works on four neighbours at once, the sums of a row do not
// wait for each other. Where a tap meets the border is known before the loop, so that nothing is asked inside.
// What it costs: the result is read and written once for each channel and tap.
#include "teach/conv_steps.h"

namespace ridgeline::teach {

void conv_2_reordered(const Conv& t) {
  std::fill_n(t.y, t.outs * t.height * t.width, 0.0f);
  for (int64_t o = 0; o < t.outs; ++o) {
    for (int64_t c = 0; c < t.channels; ++c) {
      for (int64_t ky = 0; ky < t.kernel; ++ky) {
        for (int64_t kx = 0; kx < t.kernel; ++kx) {
          const float w = t.w[((o * t.channels + c) * t.kernel + ky) * t.kernel + kx];
          const Inside rows = inside(t.height, ky, t.pad()), columns = inside(t.width, kx, t.pad());
          for (int64_t y = rows.begin; y < rows.end; ++y) {
            const float* from = t.x + (c * t.height + y + ky - t.pad()) * t.width + kx - t.pad();
            float* __restrict to = t.y + (o * t.height + y) * t.width;
            for (int64_t x = columns.begin; x < columns.end; ++x) to[x] += w * from[x];
          }
        }
      }
    }
  }
}

}  // namespace ridgeline::teach
