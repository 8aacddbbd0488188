#include <algorithm>

#include "kernels/cpu/conv/planar.h"
#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/planar_gather.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/conv/vector_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

/// A piece of a vector that lies in one row of the output: lanes [first, last) come from `offset` + lane * stride_w.
struct Piece {
  int64_t offset, first, last;
};

/// A row of one output pixel gives a vector of kLanes pieces.
struct Pieces {
  int count = 0;
  Piece piece[kLanes];
};

/// The pieces of the vector whose first output pixel is `pixel`, at one tap; lanes whose tap is outside have none.
HWY_INLINE void Split(const ConvShape& s, int64_t pixel, int64_t lanes, int64_t ky, int64_t kx, Pieces& out) {
  out.count = 0;
  int64_t oy = pixel / s.out_w, ox = pixel % s.out_w;
  for (int64_t lane = 0; lane < lanes;) {
    const int64_t run = std::min(lanes - lane, s.out_w - ox);
    const int64_t iy = oy * s.stride_h - s.pad_top + ky * s.dilation_h;
    const int64_t ix = ox * s.stride_w - s.pad_left + kx * s.dilation_w;  // of the run's first lane
    if (iy >= 0 && iy < s.height) {
      const int64_t skip = ix >= 0 ? 0 : std::min(run, (-ix + s.stride_w - 1) / s.stride_w);
      const int64_t end = ix >= s.width ? 0 : std::min(run, (s.width - 1 - ix) / s.stride_w + 1);
      if (skip < end) out.piece[out.count++] = {iy * s.width + ix - lane * s.stride_w, lane + skip, lane + end};
    }
    lane += run, ox = 0, ++oy;
  }
}

/// Lanes of one piece, zero elsewhere.
template <int kStride>
HWY_INLINE V LoadPiece(const float* plane, const Piece& p, M lanes, M lower, M upper, int64_t stride) {
  const float* at = plane + p.offset;
  if constexpr (kStride == 1) return LoadLanes(at, lanes, p.first, p.last);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  if constexpr (kStride == 2) {
    // Even floats of two vectors; the masks keep to the floats that are wanted.
    const V low = hn::MaskedLoad(lower, d, at), high = hn::MaskedLoad(upper, d, at + kLanes);
    return hn::ConcatEven(d, high, low);
  }
#endif
  (void)lower, (void)upper;
  HWY_ALIGN float all[kLanes] = {};
  for (int64_t i = p.first; i < p.last; ++i) all[i] = at[i * stride];
  return hn::Load(d, all);
}

template <int kStride>
HWY_INLINE void GatherVector(const ConvShape& s, const float* x, int64_t pixel, int64_t lanes, int64_t width,
                             float* to) {
  Pieces pieces;
  M mask[kLanes], lower[kLanes], upper[kLanes];
  for (int64_t ky = 0, tap = 0; ky < s.kernel_h; ++ky) {
    for (int64_t kx = 0; kx < s.kernel_w; ++kx, ++tap) {
      Split(s, pixel, lanes, ky, kx, pieces);
      for (int i = 0; i < pieces.count; ++i) {
        const Piece& p = pieces.piece[i];
        mask[i] = Lanes(p.first, p.last);
        if constexpr (kStride == 2) {
          const int64_t first = 2 * p.first, last = 2 * p.last - 1;
          lower[i] = Lanes(first, last);
          upper[i] = Lanes(first - kLanes, last - kLanes);
        }
      }
      const float* plane = x;
      float* out = to + tap * width;
      const int64_t step = s.taps() * width;
      if (pieces.count == 1) {
        const Piece p = pieces.piece[0];
        for (int64_t c = 0; c < s.channels; ++c, plane += s.x.channel, out += step)
          hn::StoreU(LoadPiece<kStride>(plane, p, mask[0], lower[0], upper[0], s.stride_w), d, out);
      } else {
        for (int64_t c = 0; c < s.channels; ++c, plane += s.x.channel, out += step) {
          V v = hn::Zero(d);
          for (int i = 0; i < pieces.count; ++i)
            v = hn::Or(v, LoadPiece<kStride>(plane, pieces.piece[i], mask[i], lower[i], upper[i], s.stride_w));
          hn::StoreU(v, d, out);
        }
      }
    }
  }
}

void Gather(const ConvShape& s, const float* x, int64_t first, int64_t count, int64_t width, float* to) {
  for (int64_t i = 0; i < width; i += kLanes) {
    const int64_t lanes = std::max<int64_t>(0, std::min<int64_t>(kLanes, count - i));
    if (s.stride_w == 1)
      GatherVector<1>(s, x, first + i, lanes, width, to + i);
    else if (s.stride_w == 2)
      GatherVector<2>(s, x, first + i, lanes, width, to + i);
    else
      GatherVector<0>(s, x, first + i, lanes, width, to + i);
  }
}

void GatherPixels(const ConvShape& s, const float* x, int64_t first, int64_t count, int64_t width, int64_t last_width,
                  int64_t panel_floats, float* to) {
  const int64_t whole = count / width, rest = count % width;
  for (int64_t c = 0; c < s.channels; ++c) {
    const float* from = x + c * s.x.channel + first;
    float* out = to + c * width;
    for (int64_t p = 0; p < whole; ++p, from += width, out += panel_floats)
      for (int64_t i = 0; i < width; i += kLanes) hn::StoreU(hn::LoadU(d, from + i), d, out + i);
    if (rest == 0) continue;
    out = to + whole * panel_floats + c * last_width;
    for (int64_t i = 0; i < last_width; i += kLanes)
      hn::StoreU(rest > i ? LoadFirst(from + i, rest - i) : hn::Zero(d), d, out + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(Gather);
HWY_EXPORT(GatherPixels);
}  // namespace
void gather_panel(const ConvShape& shape, const float* x, int64_t first, int64_t count, int64_t width, float* to) {
  HWY_DYNAMIC_DISPATCH(Gather)(shape, x, first, count, width, to);
}
void gather_pixels(const ConvShape& shape, const float* x, int64_t first, int64_t count, int64_t width,
                   int64_t last_width, int64_t panel_floats, float* to) {
  HWY_DYNAMIC_DISPATCH(GatherPixels)(shape, x, first, count, width, last_width, panel_floats, to);
}
}  // namespace ridgeline::cpu
#endif
