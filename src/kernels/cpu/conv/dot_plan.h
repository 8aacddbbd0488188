// Convolutions on the narrow products' tiles (kernels/cpu/matmul/dot), channels last in y. The image's rows are copied
// block by block into cells of whole lines of 64 bytes with the padding written out; line b of all cells is a plane.
// So a tile's rows, output pixels, are lines one after another for each tap, across the ends of output rows too; a 1x1
// convolution reads x as it is.
//
// A cell holds a pixel's channels, or (`wide`) all taps of one kernel row for one output pixel: with few channels those
// fill it better. Rows and columns of cells are sorted by their number modulo the stride.
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
  bool flat = false;        // y's pixels of a block are one run (rows join)
  bool rows_first = false;  // dot_sweep.h
  int64_t cell_blocks = 1;  // lines of a cell
  int64_t width = 0;        // lines of a plane from an output row to the next, at least out_w
  /// Of an input row or column modulo the stride: which set of rows, or columns, it is copied to; -1: none.
  std::vector<int64_t> phase_y, phase_x;
  int64_t phases_y = 0, phases_x = 0, phase_rows = 0;
  int64_t plane_bytes = 0;
  std::vector<int64_t> offsets;         // of each step: tap by tap, line by line
  int64_t panels = 0, panel_bytes = 0;  // of a group
  int64_t block_rows = 0, row_blocks = 0, panel_parts = 1;
  int64_t at_row_sums = 0, at_keep = 0, at_sums = 0, thread_bytes = 0;  // in a thread's workspace
  int threads = 1;

  int64_t steps() const { return int64_t(offsets.size()); }
  int64_t cell() const { return cell_blocks * kDotBlock; }
  int64_t row_bytes() const { return width * kDotBlock; }
  int64_t copied_rows(int64_t rows) const { return rows + phase_rows - block_rows; }
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
