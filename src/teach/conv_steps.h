// A convolution (one image, stride 1, as large as its input, f32), from its definition to nearly the machine's peak:
// one file a step, one idea a file. The images are planes one after the other: [channel][y][x].
#pragma once

#include <algorithm>
#include <cstdint>

namespace ridgeline::teach {

struct Conv {
  const float* x;                                 // [channels][height][width]
  const float* w;                                 // [outs][channels][kernel][kernel]
  float* y;                                       // [outs][height][width]
  int64_t channels, height, width, outs, kernel;  // kernel: odd
  float* scratch;                                 // packed_floats(), 64-byte aligned
  int threads = 1;                                // for the last step

  int64_t pad() const { return kernel / 2; }
};

// Rows of the image that are worked on together: with 64 channels of 96 columns the strip is 200 KiB, in the
// second-level cache. Channels of the result that are made together.
constexpr int64_t kStripRows = 6, kTileOuts = 4;
constexpr int64_t kMostLanes = 16;

// The copies of steps 5 to 8: weights first, then a strip for each thread. Rows have the border's zeros, and whole
// vectors.
constexpr int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
inline int64_t packed_row(const Conv& t) {
  return round_up(round_up(t.width, 3 * kMostLanes) + 2 * t.pad(), kMostLanes);
}
inline int64_t packed_plane(const Conv& t) { return packed_row(t) * (kStripRows + 2 * t.pad()); }
inline int64_t packed_weights(const Conv& t) {
  return round_up(round_up(t.outs, kTileOuts) * t.channels * t.kernel * t.kernel, kMostLanes);
}
inline int64_t packed_strip(const Conv& t) { return t.channels * packed_plane(t); }
inline int64_t packed_sums(const Conv& t) { return kTileOuts * kStripRows * packed_row(t); }  // step 5 alone
inline int64_t packed_floats(const Conv& t, int threads) {
  return packed_weights(t) + packed_sums(t) + threads * packed_strip(t);
}

/// The positions along an axis at which tap `at` of the kernel meets the image and not the border.
struct Inside {
  int64_t begin, end;
};
inline Inside inside(int64_t extent, int64_t at, int64_t pad) {
  return {std::max<int64_t>(0, pad - at), std::min(extent, extent + pad - at)};
}

void conv_1_naive(const Conv& t);
void conv_2_reordered(const Conv& t);
void conv_3_tiled(const Conv& t);
void conv_4_vectorised(const Conv& t);
void conv_5_packed(const Conv& t);
void conv_6_registers(const Conv& t);
void conv_7_prefetching(const Conv& t);
void conv_8_threaded(const Conv& t);

/// Weights as [outs / 4][channels][kernel][kernel][4], zeros for outs that there are not.
void conv_pack_weights(const Conv& t, float* to);
/// The rows of all channels that the results y0 to y0 + kStripRows need, with a border of zeros.
void conv_pack_strip(const Conv& t, int64_t y0, float* to);
/// Step 7 for some of the strips, with weights packed before, and memory for one strip.
void conv_strips(const Conv& t, int64_t begin, int64_t end, const float* weights, float* strip);

}  // namespace ridgeline::teach
