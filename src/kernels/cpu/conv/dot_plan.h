// Convolutions on the narrow products' tiles (kernels/cpu/matmul/dot), channels last in y. The image's rows are copied
// block by block into cells of whole 64 bytes with the padding written out, so that a tile's rows, output pixels, lie
// a constant step apart for each tap, across the ends of output rows too; a 1x1 convolution reads x as it is.
//
// A cell holds a pixel's channels, or (`wide`) all taps of one kernel row for one output pixel: with few channels those
// fill it better. Rows of cells are sorted by their number modulo the stride, so that output rows are one pitch apart.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/conv/geometry.h"
#include "kernels/cpu/matmul/dot/dot_gemm.h"

namespace ridgeline::cpu {

struct DotConvPlan {
  ConvGeometry g;
  DotType type = DotType::kBf16;
  int64_t element = 1;           // bytes of x
  ImageStrides x, y;             // in elements
  bool x_channels_last = false;  // x's channels are contiguous
  bool flips = false;            // i8: 128 is added
  bool on_x = false;             // tiles read x itself
  bool wide = false;
  bool flat = false;                             // y's pixels of a block are one run (rows join)
  int64_t cell_blocks = 1, cell = 0, cells = 0;  // of 64 bytes; bytes; cells in a row
  int64_t step = 0;                              // bytes from an output pixel's cell to the next pixel's
  int64_t width = 0;                             // steps from an output row to the next, at least out_w
  int64_t row_bytes = 0;
  std::vector<int64_t> phase;  // of an input row modulo the stride: which set of rows it is copied to; -1: none
  int64_t phases = 0, phase_rows = 0;
  std::vector<int64_t> offsets;         // of each run of taps
  int64_t panels = 0, panel_bytes = 0;  // of a group
  int64_t block_rows = 0, row_blocks = 0, panel_parts = 1;
  int64_t copy_bytes = 0, row_sums_bytes = 0, thread_bytes = 0;
  int threads = 1;

  int64_t taps() const { return int64_t(offsets.size()); }
  int64_t units() const { return g.groups * g.images * row_blocks * panel_parts; }
  int64_t workspace_bytes() const { return thread_bytes * threads; }
  int64_t group_bytes() const { return panels * panel_bytes; }
};

/// `x`, `y`: strides of both images.
DotConvPlan dot_conv_plan(const ConvGeometry& g, DotType type, DType x_dtype, const ImageStrides& x, bool x_last,
                          const ImageStrides& y, int threads);

/// Bytes of all groups' panels. `weights` are [out_channel][channel][ky][kx] of bf16, i8 or u8.
int64_t dot_conv_weight_bytes(const DotConvPlan& plan);
void dot_conv_pack(const DotConvPlan& plan, DType dtype, const void* weights, uint8_t* panels);
/// Sums over k of each output channel's packed weights.
void dot_conv_weight_sums(const DotConvPlan& plan, const uint8_t* panels, int32_t* sums);

/// A finished block: pixels [ox, ox + rows) of row oy, of channels [channel, channel + cols) of all groups'. A flat
/// plan gives runs that go on over the ends of rows.
struct DotConvBlock {
  const void* sums;
  const int32_t* row_sums;  // of the block's first pixel, or null
  int64_t image, oy, ox, channel;
  int rows, cols;
};

struct DotConvCall {
  const uint8_t* x = nullptr;
  const uint8_t* panels = nullptr;
  uint8_t zero = 0;            // what stands for 0 in the padding, as the tiles see it
  bool want_row_sums = false;  // of what the tiles read: for zero points of the weights
  void* workspace = nullptr;
  void (*finish)(const void* context, const DotConvBlock& block) = nullptr;
  const void* context = nullptr;
};
void dot_conv(const DotConvPlan& plan, const DotConvCall& call, const ThreadPool& pool);

}  // namespace ridgeline::cpu
