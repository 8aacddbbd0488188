// What the convolutions by bulk copies and warpgroup products have in common: which problems they take, the weights'
// form, and the numbers and maps of a launch.
#pragma once

#include "kernels/cuda/conv/geometry.h"
#include "kernels/cuda/device.h"

namespace ridgeline::cuda {

inline constexpr int kTapDepth = 64;  // channels of a block of K

Support supports_taps(const Problem& problem);

/// One tap, and the output's pixels are the input's.
bool keeps_pixels(const ConvGeometry& geometry);

/// Blocks of K.
int64_t tap_blocks(const ConvGeometry& geometry);

/// [M, taps, channels rounded up to a multiple of kTapDepth], 16 bits each, zeros behind the last channel.
Packing taps_packing(const Problem& problem, const Tile&, int input);
void pack_taps(const Problem& problem, const Tile&, int input, const Tensor& weights, void* packed);

/// struct Arguments of taps.cu.
struct TapArguments {
  const void *x, *y, *staged, *bias;
  int pixels, channels, out_channels;
  int tiles, tiles_n;
  int blocks_c;
  int kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w, pad_h, pad_w;
  int in_h, in_w, out_h, out_w;
  int bulk_x, bulk_y, bulk_staged;
};
/// For tiles of bm pixels by bn channels. `staged`: an operand of the epilogue, or -1.
TapArguments tap_arguments(const Problem& problem, const Buffers& buffers, int bm, int bn, int staged);
/// Boxes of bm pixels by kTapDepth channels (empty where bulk copies refuse x), and of bn rows of weights.
TensorMap tap_image_map(const Problem& problem, const TapArguments& arguments, int bm);
TensorMap tap_weight_map(const Problem& problem, const void* packed, int bn);

MapType half_map_type(DType dtype);

}  // namespace ridgeline::cuda
