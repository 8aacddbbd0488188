// Direct convolution, channels last: no matrix is made of the image. The register kernel walks the taps of a tile of
// neighbouring output pixels in place; a block's input rows are copied only where taps leave the image sideways or
// strides collide in the cache (a copied float is used by kernel_w * kernel_h * out_channels multiply-adds, so this
// costs under one percent).
#pragma once

#include <cstdint>
#include <limits>

#include "core/thread_pool.h"
#include "kernels/cpu/conv/geometry.h"

namespace ridgeline::cpu {

struct DirectShape {
  int64_t groups = 1, images = 0;
  int64_t height = 0, width = 0, channels = 0;  // channels of one group; groups lie next to each other
  ImageStrides x;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0;               // may be negative: the first tap lies within the image
  int64_t out_h = 0, out_w = 0, out_channels = 0;  // channels of one group
  ImageStrides y;
  bool has_residual = false;
  ImageStrides residual;
  int64_t row_run() const { return kernel_w * channels; }
  int64_t depth() const { return kernel_h * kernel_w * channels; }
};

/// How a shape is run: blocks of output (rows x columns x panels of channels), each in cache.
struct DirectPlan {
  DirectShape shape;
  bool flat = false;  // a 1x1 convolution on contiguous pixels: shape has one image of one row; these were its extents
  int64_t flat_h = 1, flat_w = 1;
  int64_t panel_floats = 0, panels = 0, width = 0, max_tile = 0;
  bool large_weights = false;  // they do not stay in the second-level cache
  bool copy = false;
  int64_t copy_pixel = 0, copy_columns = 0, copy_rows = 0, copy_column_step = 1, copy_row_step = 1;
  int64_t block_rows = 1, block_columns = 1, block_panels = 1;
  int64_t row_blocks = 0, column_blocks = 0, panel_blocks = 0;
  int64_t thread_floats = 0;  // workspace of a thread
  int threads = 1;
  int64_t units() const { return shape.groups * panel_blocks * shape.images * row_blocks * column_blocks; }
  int64_t workspace_bytes() const { return thread_floats * 4 * threads; }
};
DirectPlan direct_plan(const DirectShape& shape, int threads);

/// Weights: for each group and each panel of two vectors of output channels, [kernel_h][kernel_w][channels][channels of
/// the panel]; the last panel is one vector wide if that suffices. Missing channels are zero.
int64_t direct_weight_floats(int64_t groups, int64_t out_channels, int64_t depth);
/// `weight(group, out_channel, tap_y, tap_x, channel)` strides in floats over the source.
struct DirectWeights {
  const float* data = nullptr;
  int64_t group = 0, out_channel = 0, tap_y = 0, tap_x = 0, channel = 0;
};
void pack_direct_weights(const DirectShape& shape, const DirectWeights& source, float* packed);

/// A run of finished output: pixels [ox, ox + pixels) of row (image, oy), channels [channel, channel + channels)
/// counted over all groups.
using FinishedRow = void (*)(const void* context, float* y, int64_t image, int64_t oy, int64_t ox, int64_t pixels,
                             int64_t channel, int64_t channels);

struct DirectBuffers {
  const float* x = nullptr;
  const float* weights = nullptr;  // packed
  const float* bias = nullptr;
  const float* residual = nullptr;
  float* y = nullptr;
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
  FinishedRow finished = nullptr;  // called once for each output
  const void* context = nullptr;
  void* workspace = nullptr;
};
void direct_conv(const DirectPlan& plan, const DirectBuffers& buffers, const ThreadPool& pool);

}  // namespace ridgeline::cpu
