// Convolution of plain NCHW images: y[out_channel, pixel] = W[out_channel, k] X[k, pixel], with vectors along pixels.
// Panels of X (two vectors of output pixels by all k) are gathered from the image into the workspace, a block at a
// time; the register kernel is that of the channels-last convolution with the weights' rows as its "pixels".
#pragma once

#include <cstdint>
#include <limits>

#include "core/thread_pool.h"
#include "kernels/cpu/conv/geometry.h"

namespace ridgeline::cpu {

struct PlanarShape {
  int64_t groups = 1, images = 0;
  int64_t height = 0, width = 0, channels = 0;  // channels of one group
  ImageStrides x;                               // rows and pixels contiguous
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0;  // may be negative
  int64_t out_h = 0, out_w = 0, out_channels = 0;
  ImageStrides y;
  bool has_residual = false;
  ImageStrides residual;
  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t depth() const { return taps() * channels; }
  bool keeps_pixels() const {
    return taps() == 1 && stride_h == 1 && stride_w == 1 && !pad_top && !pad_left && height == out_h && width == out_w;
  }
  int64_t pixels() const { return out_h * out_w; }
};

struct PlanarPlan {
  PlanarShape shape;
  int64_t width = 0;   // pixels of a panel
  int64_t panels = 0;  // of one image
  int64_t block_panels = 1, blocks = 0;
  int64_t block_rows = 1, row_blocks = 0;  // of output channels
  int64_t row_floats = 0;                  // from one packed row of weights to the next
  int64_t thread_floats = 0;
  int threads = 1;
  int64_t units() const { return row_blocks * shape.groups * shape.images * blocks; }
  int64_t workspace_bytes() const { return thread_floats * 4 * threads; }
};
PlanarPlan planar_plan(const PlanarShape& shape, int threads);

/// Floats from one row of weights to the next: rows a multiple of 2 KiB apart evict each other from the first cache.
int64_t planar_row_floats(int64_t depth);

/// Output of channels [channel, channel + channels) counted over all groups, pixels [ox, ox + pixels) of row (image,
/// oy).
using FinishedPlanes = void (*)(const void* context, float* y, int64_t image, int64_t oy, int64_t ox, int64_t pixels,
                                int64_t channel, int64_t channels);

struct PlanarBuffers {
  const float* x = nullptr;
  const float* weights = nullptr;  // [groups * out_channels][row_floats]: channel, ky, kx
  int64_t weight_row = 0;          // floats from one row to the next
  const float* bias = nullptr;
  const float* residual = nullptr;
  float* y = nullptr;
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
  FinishedPlanes finished = nullptr;
  const void* context = nullptr;
  void* workspace = nullptr;
};
void planar_conv(const PlanarPlan& plan, const PlanarBuffers& buffers, const ThreadPool& pool);

/// Gathers X for output pixels [first, first + count) of one image: to[k * width + i], zero beyond `count`. `x` is the
/// image's first plane of the group.
void gather_panel(const PlanarShape& shape, const float* x, int64_t first, int64_t count, int64_t width, float* to);

/// The same for a 1x1 convolution that keeps its pixels: all of a block's panels of full width (the last may be
/// narrower, `last_width`), channel after channel: 2 KiB of a plane at a time instead of 128 bytes, which is what the
/// page table and the fetching ahead want.
void gather_pixels(const PlanarShape& shape, const float* x, int64_t first, int64_t count, int64_t width,
                   int64_t last_width, int64_t panel_floats, float* to);

}  // namespace ridgeline::cpu
