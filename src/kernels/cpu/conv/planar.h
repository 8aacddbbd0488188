// Convolution of plain NCHW images: y[out_channel, pixel] = W[out_channel, k] X[k, pixel], with vectors along pixels.
// Panels of X (two vectors of output pixels by all k) are gathered from the image into the workspace, a block at a
// time; the register kernel is that of the channels-last convolution with the weights' rows as its "pixels".
#pragma once

#include <cstdint>

#include "core/thread_pool.h"
#include "kernels/cpu/conv/shape.h"

namespace ridgeline::cpu {

// Weights: [groups * out_channels][row_floats], a row being channel, ky, kx. Rows and pixels of x are contiguous.

struct PlanarPlan {
  ConvShape shape;
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
PlanarPlan planar_plan(const ConvShape& shape, int threads);

/// Floats from one row of weights to the next: rows a multiple of 2 KiB apart evict each other from the first cache.
int64_t planar_row_floats(int64_t depth);

void planar_conv(const PlanarPlan& plan, const ConvBuffers& buffers, const ThreadPool& pool);

/// Gathers X for output pixels [first, first + count) of one image: to[k * width + i], zero beyond `count`. `x` is the
/// image's first plane of the group.
void gather_panel(const ConvShape& shape, const float* x, int64_t first, int64_t count, int64_t width, float* to);

/// The same for a 1x1 convolution that keeps its pixels: all of a block's panels of full width (the last may be
/// narrower, `last_width`), channel after channel: 2 KiB of a plane at a time instead of 128 bytes, which is what the
/// page table and the fetching ahead want.
void gather_pixels(const ConvShape& shape, const float* x, int64_t first, int64_t count, int64_t width,
                   int64_t last_width, int64_t panel_floats, float* to);

}  // namespace ridgeline::cpu
