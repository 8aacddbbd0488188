// 1. Naive: each pixel of the result is a sum over all channels and taps, as the definition says.
//
// Why it is slow: the border is asked about at every tap (two comparisons and a jump for a multiply-add), the addresses
// are computed anew each time, a sum waits 4 cycles for the one before it, and every step of the channel loop jumps to
// another plane, so that for each pixel kernel x channels lines of the cache are visited for a few floats each.
#include "teach/conv_steps.h"

namespace ridgeline::teach {

void conv_1_naive(const Conv& t) {
  for (int64_t o = 0; o < t.outs; ++o) {
    for (int64_t y = 0; y < t.height; ++y) {
      for (int64_t x = 0; x < t.width; ++x) {
        float sum = 0;
        for (int64_t c = 0; c < t.channels; ++c) {
          for (int64_t ky = 0; ky < t.kernel; ++ky) {
            for (int64_t kx = 0; kx < t.kernel; ++kx) {
              const int64_t from_y = y + ky - t.pad(), from_x = x + kx - t.pad();
              if (from_y < 0 || from_y >= t.height || from_x < 0 || from_x >= t.width) continue;
              sum += t.x[(c * t.height + from_y) * t.width + from_x] *
                     t.w[((o * t.channels + c) * t.kernel + ky) * t.kernel + kx];
            }
          }
        }
        t.y[(o * t.height + y) * t.width + x] = sum;
      }
    }
  }
}

}  // namespace ridgeline::teach
