#include "kernels/cuda/conv/taps.h"

#include <algorithm>
#include <cstdlib>

#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/conv/matrix_epilogue.h"

namespace ridgeline::cuda {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
bool is_half(DType t) { return t == DType::kF16 || t == DType::kBF16; }
bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

// Where the last window begins, less the image's last pixel.
int64_t upper_corner(const ConvGeometry& g, size_t axis) {
  return (g.out[axis] - 1) * g.stride[axis] - g.begin[axis] - (g.in[axis] - 1);
}

}  // namespace

MapType half_map_type(DType dtype) { return dtype == DType::kF16 ? MapType::kF16 : MapType::kBF16; }

bool keeps_pixels(const ConvGeometry& g) {
  return g.taps() == 1 && g.stride[1] == 1 && g.stride[2] == 1 && g.begin[1] == 0 && g.begin[2] == 0 && g.in == g.out;
}

int64_t tap_blocks(const ConvGeometry& g) { return g.taps() * ceil_div(g.in_channels, kTapDepth); }

Support supports_taps(const Problem& p) {
  for (const Capability wanted : {Capability::kWgmma, Capability::kBulkCopies, Capability::kClusters})
    if (const std::string why = missing(wanted); !why.empty()) return no("{}", why);
  if (!is_half(p.input(0).dtype)) return no("takes f16 and bf16");
  if (!is_half(p.output().dtype)) return no("writes f16 and bf16");
  const int rank = p.input(0).layout.rank();
  if (rank != 3 && rank != 4) return no("takes one or two spatial axes, not {}", rank - 2);
  if (!p.input(1).is_constant) return no("the weights are no constant");
  if (p.has(2) && !p.input(2).is_constant) return no("the bias is no constant");
  const ConvGeometry g = conv_geometry(p);
  if (g.groups != 1) return no("{} groups", g.groups);
  if (g.in_channels % 8 || g.out_channels % 8 || g.in_channels == 0 || g.out_channels == 0)
    return no("{} and {} channels: multiples of 8 are wanted", g.in_channels, g.out_channels);
  if (!is_pixel_matrix(p.input(0).layout) || !is_pixel_matrix(p.output().layout))
    return no("the images are not channels last without gaps");
  if (p.input(0).elements() == 0 || p.output().elements() == 0) return no("an empty image");
  if (g.images * std::max(g.in_pixels(), g.out_pixels()) >= int64_t(1) << 30) return no("2^30 pixels and more");
  if (!keeps_pixels(g)) {
    // What descriptors of im2col mode can say.
    for (size_t axis : {size_t(1), size_t(2)}) {
      if (std::abs(g.begin[axis]) > 127 || std::abs(upper_corner(g, axis)) > 127 ||
          (g.kernel[axis] - 1) * g.dilation[axis] > 255 || g.stride[axis] > 8)
        return no("padding, dilation or stride beyond what bulk copies know");
    }
  }
  if (const std::string why = matrix_epilogue_reject(p); !why.empty()) return no("{}", why);
  return yes();
}

Packing taps_packing(const Problem& p, const Tile&, int input) {
  if (input != 1) return {};
  const ConvGeometry g = conv_geometry(p);
  return {
      fmt::format("cuda taps m={} taps={} c={} {}", g.out_channels, g.taps(), g.in_channels, name(p.input(1).dtype)),
      g.out_channels * tap_blocks(g) * kTapDepth * 2};
}

void pack_taps(const Problem& p, const Tile&, int, const Tensor& weights, void* packed) {
  const ConvGeometry g = conv_geometry(p);
  const int64_t taps = g.taps(), group_in = g.in_channels, channels = ceil_div(group_in, kTapDepth) * kTapDepth;
  const uint16_t* from = weights.as<uint16_t>();
  uint16_t* to = static_cast<uint16_t*>(packed);
  for (int64_t m = 0; m < g.out_channels; ++m, from += taps * group_in) {
    for (int64_t tap = 0; tap < taps; ++tap, to += channels) {
      for (int64_t c = 0; c < channels; ++c) to[c] = c < group_in ? from[c * taps + tap] : uint16_t(0);
    }
  }
}

TapArguments tap_arguments(const Problem& p, const Buffers& buffers, int bm, int bn, int staged) {
  const ConvGeometry g = conv_geometry(p);
  const int64_t rows = g.images * g.out_pixels();
  TapArguments a{};
  a.x = buffers.inputs[0], a.y = buffers.outputs[0], a.bias = p.has(2) ? buffers.inputs[2] : nullptr;
  a.staged = staged < 0 ? nullptr : buffers.inputs[p.op_inputs + staged];
  a.pixels = int(rows), a.channels = int(g.in_channels), a.out_channels = int(g.out_channels);
  a.tiles_n = int(ceil_div(g.out_channels, bn));
  a.tiles = int(ceil_div(rows, bm)) * a.tiles_n;
  a.blocks_c = int(ceil_div(g.in_channels, kTapDepth));
  a.kernel_h = int(g.kernel[1]), a.kernel_w = int(g.kernel[2]);
  a.stride_h = int(g.stride[1]), a.stride_w = int(g.stride[2]);
  a.dilation_h = int(g.dilation[1]), a.dilation_w = int(g.dilation[2]);
  a.pad_h = int(g.begin[1]), a.pad_w = int(g.begin[2]);
  a.in_h = int(g.in[1]), a.in_w = int(g.in[2]), a.out_h = int(g.out[1]), a.out_w = int(g.out[2]);
  a.bulk_x = aligned(a.x), a.bulk_y = aligned(a.y), a.bulk_staged = aligned(a.staged);
  return a;
}

TensorMap tap_image_map(const Problem& p, const TapArguments& a, int bm) {
  if (!a.bulk_x) return {};
  const ConvGeometry g = conv_geometry(p);
  const MapType type = half_map_type(p.input(0).dtype);
  if (keeps_pixels(g)) {
    const int64_t extents[2] = {g.in_channels, a.pixels}, stride[1] = {g.in_channels * 2};
    const int box[2] = {kTapDepth, bm};
    return tensor_map(type, 2, a.x, extents, stride, box, 128);
  }
  ImageWindow w;
  w.channels = g.in_channels, w.width = g.in[2], w.height = g.in[1], w.images = g.images;
  w.stride_w = g.stride[2], w.stride_h = g.stride[1];
  w.lower_w = -a.pad_w, w.lower_h = -a.pad_h;
  w.upper_w = int(upper_corner(g, 2)), w.upper_h = int(upper_corner(g, 1));
  return image_map(type, a.x, w, kTapDepth, bm, 128);
}

TensorMap tap_weight_map(const Problem& p, const void* packed, int bn) {
  const ConvGeometry g = conv_geometry(p);
  const int64_t depth = tap_blocks(g) * kTapDepth, extents[2] = {depth, g.out_channels}, stride[1] = {depth * 2};
  const int box[2] = {kTapDepth, bn};
  return tensor_map(half_map_type(p.input(0).dtype), 2, packed, extents, stride, box, 128);
}

}  // namespace ridgeline::cuda
