// Direct convolution, channels last: no matrix is made of the image. The register kernel walks the taps of a tile of
// neighbouring output pixels in place; a block's input rows are copied only where taps leave the image sideways or
// strides collide in the cache (a copied float is used by kernel_w * kernel_h * out_channels multiply-adds, so this
// costs under one percent).
#pragma once

#include <cstdint>

#include "core/thread_pool.h"
#include "kernels/cpu/conv/shape.h"

namespace ridgeline::cpu {

/// How a shape is run: blocks of output (rows x columns x panels of channels), each in cache.
struct DirectPlan {
  ConvShape shape;
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
DirectPlan direct_plan(const ConvShape& shape, int threads);

/// Weights: for each group and each panel of two vectors of output channels, [kernel_h][kernel_w][channels][channels of
/// the panel]; the last panel is one vector wide if that suffices. Missing channels are zero.
int64_t direct_weight_floats(int64_t groups, int64_t out_channels, int64_t depth);
/// `weight(group, out_channel, tap_y, tap_x, channel)` strides in floats over the source.
struct DirectWeights {
  const float* data = nullptr;
  int64_t group = 0, out_channel = 0, tap_y = 0, tap_x = 0, channel = 0;
};
void pack_direct_weights(const ConvShape& shape, const DirectWeights& source, float* packed);

void direct_conv(const DirectPlan& plan, const ConvBuffers& buffers, const ThreadPool& pool);

}  // namespace ridgeline::cpu
