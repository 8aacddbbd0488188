// How a convolution lies on the tiles: cells, runs of taps, blocks of rows; and its packed weights.
#include "kernels/cpu/conv/dot_plan.h"

#include <algorithm>
#include <cstring>

#include "core/integer.h"
#include "kernels/cpu/matmul/dot/dot_sweep.h"
#include "machine/probe.h"

namespace ridgeline::cpu {
namespace {

// The sets of rows (or columns) that the taps reach.
std::vector<int64_t> phases_of(int64_t taps, int64_t dilation, int64_t stride, int64_t& count) {
  std::vector<int64_t> phase(size_t(stride), -1);
  for (int64_t tap = 0; tap < taps; ++tap) {
    int64_t& of = phase[size_t(tap * dilation % stride)];
    if (of < 0) of = count++;
  }
  return phase;
}

void place_cells(DotConvPlan& p) {
  const ConvGeometry& g = p.g;
  const int64_t channel_bytes = g.group_in() * p.element;
  const int64_t narrow = ceil_div(channel_bytes, kDotBlock), wide = ceil_div(g.kernel_w * channel_bytes, kDotBlock);
  p.wide = g.kernel_w == 1 || wide < narrow * g.kernel_w;
  p.cell_blocks = p.wide ? wide : narrow;
  p.width = p.wide ? g.out_w : g.out_w + (g.kernel_w - 1) * g.dilation_w / g.stride_w;
  p.phase_y = phases_of(g.kernel_h, g.dilation_h, g.stride_h, p.phases_y);
  p.phase_x = p.wide ? phases_of(1, 1, 1, p.phases_x) : phases_of(g.kernel_w, g.dilation_w, g.stride_w, p.phases_x);
}

// Rows of output whose input stays in half of the second cache; as many blocks as there are threads, if rows are
// split.
void place_blocks(DotConvPlan& p) {
  const ConvGeometry& g = p.g;
  const int64_t halo = (g.kernel_h - 1) * g.dilation_h / g.stride_h;
  const int64_t row =
      p.on_x ? g.out_w * p.x.pixel * p.element : p.phases_y * p.phases_x * p.cell_blocks * p.row_bytes();
  const int64_t room = this_cpu().caches.l2 / 2 / std::max<int64_t>(1, row) - halo;
  p.block_rows = std::clamp<int64_t>(room, 1, std::max<int64_t>(1, g.out_h));
  if (p.threads > 1 && g.images * g.groups % p.threads != 0) {
    // Whoever splits the rows reads all weights on each thread, whoever splits the channels the whole image.
    const int64_t image = row * g.out_h;
    if (p.group_bytes() > image && p.panels >= p.threads)
      p.panel_parts = p.threads;
    else
      p.block_rows = std::min(p.block_rows, std::max<int64_t>(1, ceil_div(g.out_h, p.threads)));
  }
  p.row_blocks = ceil_div(g.out_h, p.block_rows);
  p.block_rows = ceil_div(g.out_h, std::max<int64_t>(1, p.row_blocks));  // nearly equal ones
  p.row_blocks = g.out_h > 0 ? ceil_div(g.out_h, p.block_rows) : 0;
  p.phase_rows = p.block_rows + halo;
  // Where few channels meet many pixels and y is most of the traffic (ResNet-50's 64 to 256 channels of 56x56 in bf16:
  // 332 us panel by panel, 282 so). With more weights than some 100 KiB their way from the second cache costs more: 128
  // channels 3x3 of 28x28 took 188 us instead of 149.
  constexpr int64_t kFewWeights = 96 << 10;
  p.rows_first = p.group_bytes() / p.panel_parts <= kFewWeights && p.block_rows * p.width >= 8 * kDotSweepRows;
}

void place_steps(DotConvPlan& p) {
  const ConvGeometry& g = p.g;
  if (p.on_x) {
    for (int64_t b = 0; b < p.cell_blocks; ++b) p.offsets.push_back(b * kDotBlock);
    return;
  }
  // Tiles read whole sixteens of rows, into the next plane; an odd number of lines, so that a cell's lie in many sets.
  const int64_t set = p.phase_rows * p.row_bytes();
  p.plane_bytes = ((p.phases_y * p.phases_x * set / kDotBlock) | 1) * kDotBlock;
  for (int64_t ky = 0; ky < g.kernel_h; ++ky) {
    const int64_t row = ky * g.dilation_h, set_y = p.phase_y[size_t(row % g.stride_h)] * p.phases_x;
    for (int64_t kx = 0; kx < (p.wide ? 1 : g.kernel_w); ++kx) {
      const int64_t column = kx * g.dilation_w;
      const int64_t set_x = p.wide ? 0 : p.phase_x[size_t(column % g.stride_w)];
      const int64_t at = (set_y + set_x) * set + row / g.stride_h * p.row_bytes() + column / g.stride_w * kDotBlock;
      for (int64_t b = 0; b < p.cell_blocks; ++b) p.offsets.push_back(b * p.plane_bytes + at);
    }
  }
}

void place_memory(DotConvPlan& p) {
  const int64_t pixels = p.block_rows * p.width;
  const int64_t copy = p.on_x ? kMostDotRows * p.cell()  // the last pixels
                              : p.cell_blocks * p.plane_bytes + kMostDotRows * kDotBlock;
  p.at_row_sums = round_up(copy, kDotBlock);
  p.at_keep = p.at_row_sums + (p.type == DotType::kU8S8 ? round_up(pixels * 4, kDotBlock) : 0);
  p.at_sums = p.at_keep + dot_sweep_keep_bytes(pixels, p.steps(), p.rows_first);
  p.thread_bytes = p.at_sums + kMostDotRows * kDotColumns * 4;
}

}  // namespace

DotConvPlan dot_conv_plan(const ConvGeometry& g, DotType type, DType x_dtype, const ImageStrides& x, bool x_last,
                          const ImageStrides& y, int threads) {
  DotConvPlan p;
  p.g = g;
  p.type = type;
  p.element = type == DotType::kBf16 ? 2 : 1;
  p.x = x, p.y = y;
  p.x_channels_last = x_last;
  p.flips = x_dtype == DType::kI8;
  p.threads = std::max(1, threads);
  place_cells(p);
  const bool same_pixels = g.pointwise() && g.stride_h == 1 && g.stride_w == 1 && g.pad_top == 0 && g.pad_left == 0 &&
                           g.in_h == g.out_h && g.in_w == g.out_w;
  p.on_x = same_pixels && x_last && !p.flips && g.group_in() * p.element == p.cell() && x.row == x.pixel * g.in_w;
  p.flat = p.width == g.out_w && y.row == y.pixel * g.out_w;
  p.panels = ceil_div(g.group_out(), kDotColumns);
  p.panel_bytes = g.kernel_h * (p.wide ? 1 : g.kernel_w) * p.cell_blocks * kDotPanelBlock;
  place_blocks(p);
  place_steps(p);
  place_memory(p);
  return p;
}

int64_t dot_conv_weight_bytes(const DotConvPlan& p) { return p.g.groups * p.group_bytes(); }

void dot_conv_pack(const DotConvPlan& p, DType dtype, const void* weights, uint8_t* panels) {
  const ConvGeometry& g = p.g;
  const int64_t channels = g.group_in(), taps = g.taps(), in_cell = p.wide ? g.kernel_w : 1, per = 4 / p.element;
  const uint8_t flip = dtype == DType::kU8 ? 0x80 : 0;
  std::memset(panels, 0, size_t(dot_conv_weight_bytes(p)));
  for (int64_t out = 0; out < g.out_channels; ++out) {
    const int64_t group = out / g.group_out(), within = out % g.group_out();
    uint8_t* panel = panels + group * p.group_bytes() + within / kDotColumns * p.panel_bytes + within % kDotColumns * 4;
    const uint8_t* from = static_cast<const uint8_t*>(weights) + out * channels * taps * p.element;
    for (int64_t tap = 0; tap < taps; ++tap) {
      uint8_t* cell = panel + tap / in_cell * p.cell_blocks * kDotPanelBlock;
      const uint8_t* w = from + tap * p.element;
      const int64_t first = tap % in_cell * channels;
      int64_t within_group = first % per;
      uint8_t* group = cell + first / per * (kDotColumns * 4);
      for (int64_t c = 0; c < channels; ++c, w += taps * p.element) {
        uint8_t* to = group + within_group * p.element;
        if (p.element == 1)
          *to = uint8_t(*w ^ flip);
        else
          std::memcpy(to, w, 2);
        if (++within_group == per) within_group = 0, group += kDotColumns * 4;
      }
    }
  }
}

void dot_conv_weight_sums(const DotConvPlan& p, const uint8_t* panels, int32_t* sums) {
  const ConvGeometry& g = p.g;
  for (int64_t group = 0; group < g.groups; ++group)
    dot_column_sums(panels + group * p.group_bytes(), p.panel_bytes / kDotColumns, g.group_out(),
                    sums + group * g.group_out());
}

}  // namespace ridgeline::cpu
