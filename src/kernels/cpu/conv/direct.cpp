#include "kernels/cpu/conv/direct.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <functional>

#include "core/integer.h"
#include "kernels/cpu/conv/direct_micro.h"

namespace ridgeline::cpu {
namespace {

/// What a block's input may take of the second-level cache beside a panel of weights; more where the weights do not
/// stay in that cache, since each block reads all of them.
constexpr int64_t kBlockBytes = 192 << 10, kLargeBlockBytes = 640 << 10;
constexpr int64_t kLargeWeightBytes = 1 << 20;

/// Taps [first, last) of an axis that fall inside [0, extent) from position `start`.
struct Range {
  int64_t first, last;
};
Range inside(int64_t start, int64_t taps, int64_t dilation, int64_t extent) {
  const int64_t first = start >= 0 ? 0 : std::min(taps, ceil_div(-start, dilation));
  const int64_t last = start >= extent ? 0 : std::min(taps, (extent - 1 - start) / dilation + 1);
  return {first, std::max(first, last)};
}

void flatten(DirectPlan& plan) {
  ConvShape& s = plan.shape;
  if (!s.keeps_pixels()) return;
  const auto joins = [&](const ImageStrides& t) {
    return (s.height == 1 || t.row == t.pixel * s.width) && (s.images == 1 || t.image == t.pixel * s.width * s.height);
  };
  if (!joins(s.x) || !joins(s.y) || (s.has_residual && !joins(s.residual))) return;
  plan.flat = true;
  plan.flat_h = s.out_h, plan.flat_w = s.out_w;
  s.width = s.out_w = s.images * s.height * s.width;
  s.height = s.out_h = s.images = 1;
}

/// The packed weights of a panel and how wide it is.
struct Panel {
  const float* weights;
  int vectors;
};

struct Block {
  int64_t group, image, oy, rows, ox, columns, panel, panels;
};

class Runner {
 public:
  Runner(const DirectPlan& plan, const ConvBuffers& buffers)
      : plan_(plan), s_(plan.shape), b_(buffers), kernels_(direct_kernels()) {
    group_floats_ = direct_weight_floats(1, s_.out_channels, s_.depth());
  }

  void unit(int64_t index, float* copy) const {
    Block block;
    const int64_t column_block = index % plan_.column_blocks;
    index /= plan_.column_blocks;
    const int64_t row_block = index % plan_.row_blocks;
    index /= plan_.row_blocks;
    block.image = index % s_.images;
    index /= s_.images;
    const int64_t panel_block = index % plan_.panel_blocks;
    block.group = index / plan_.panel_blocks;
    block.ox = column_block * plan_.block_columns;
    block.columns = std::min(plan_.block_columns, s_.out_w - block.ox);
    block.oy = row_block * plan_.block_rows;
    block.rows = std::min(plan_.block_rows, s_.out_h - block.oy);
    block.panel = panel_block * plan_.block_panels;
    block.panels = std::min(plan_.block_panels, plan_.panels - block.panel);
    run(block, copy);
  }

 private:
  void run(const Block& block, float* copy) const {
    const float* image = b_.x + block.image * s_.x.image + block.group * s_.channels;
    // The tap (0, 0) of the block's first output.
    const int64_t top = block.oy * s_.stride_h - s_.pad_top, left = block.ox * s_.stride_w - s_.pad_left;
    DirectTile tile;
    const float* origin;  // where the tap (0, 0) of the block's first output is, or would be
    int64_t row, pixel, row_out, tap_row;
    if (plan_.copy) {
      copy_rows(block, image, top, left, copy);
      pixel = plan_.copy_pixel, row = pixel * plan_.copy_columns;
      origin = copy;
      tile.a_step = pixel * (plan_.copy_column_step == 1 ? s_.stride_w : 1);
      row_out = row * (plan_.copy_row_step == 1 ? s_.stride_h : 1);
      tap_row = row * s_.dilation_h;
    } else {
      pixel = s_.x.pixel, row = s_.x.row;
      origin = image + top * row + left * pixel;
      tile.a_step = pixel * s_.stride_w;
      row_out = row * s_.stride_h;
      tap_row = row * s_.dilation_h;
    }
    tile.outer_step = tap_row;
    if (s_.dilation_w == 1 && pixel == s_.channels) {
      tile.inner = 1, tile.inner_step = 0, tile.run = s_.row_run();
    } else {
      tile.inner = s_.kernel_w, tile.inner_step = s_.dilation_w * pixel, tile.run = s_.channels;
    }
    tile.low = b_.low, tile.high = b_.high;
    tile.y_step = s_.y.pixel;
    tile.residual_step = s_.residual.pixel;

    const int64_t tiles = ceil_div(block.columns, plan_.max_tile);
    const int64_t base = block.columns / tiles, longer = block.columns % tiles;
    const bool large = plan_.large_weights;
    const int64_t panel_tiles = block.rows * tiles;
    for (int64_t p = block.panel; p < block.panel + block.panels; ++p) {
      const int64_t channel = p * plan_.width;
      const int vectors = s_.out_channels - channel > kernels_.lanes ? 2 : 1;
      const DirectMicro* table = vectors == 2 ? kernels_.two : kernels_.one;
      const float* weights = b_.weights + block.group * group_floats_ + p * plan_.panel_floats;
      const int64_t first_channel = block.group * s_.out_channels + channel;
      tile.cols = std::min(s_.out_channels - channel, int64_t(vectors) * kernels_.lanes);
      tile.bias = b_.bias ? b_.bias + first_channel : nullptr;
      // A part of the next panel is fetched ahead (6 to 10 % where weights come from the third level). Fetching the
      // next pixels of a large image did nothing.
      const bool weights_ahead = large && p + 1 < block.panel + block.panels;
      int64_t part = 0;
      for (int64_t r = 0; r < block.rows; ++r) {
        const int64_t oy = block.oy + r;
        const Range taps = inside(oy * s_.stride_h - s_.pad_top, s_.kernel_h, s_.dilation_h, s_.height);
        tile.outer = taps.last - taps.first;
        tile.w = weights + taps.first * s_.row_run() * vectors * kernels_.lanes;
        const float* a = origin + r * row_out + taps.first * tap_row;
        float* y = b_.y + block.image * s_.y.image + oy * s_.y.row + block.ox * s_.y.pixel + first_channel;
        const float* residual = nullptr;
        if (b_.residual)
          residual = b_.residual + block.image * s_.residual.image + oy * s_.residual.row +
                     block.ox * s_.residual.pixel + first_channel;
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t pixels = base + (t < longer), half = (pixels + 1) / 2;
          tile.a = a, tile.a_high = a + half * tile.a_step;
          tile.y = y, tile.y_high = y + half * tile.y_step;
          tile.residual = residual;
          tile.residual_high = residual ? residual + half * tile.residual_step : nullptr;
          if (weights_ahead) {
            tile.prefetch_step = plan_.width * 4 / panel_tiles + 1;
            tile.prefetch =
                reinterpret_cast<const char*>(weights + plan_.panel_floats) + part++ * tile.prefetch_step * s_.depth();
          } else {
            tile.prefetch_step = 0;
          }
          table[pixels](tile);
          a += pixels * tile.a_step, y += pixels * tile.y_step;
          if (residual) residual += pixels * tile.residual_step;
        }
      }
    }
    if (b_.finished) finish(block);
  }

  /// Input rows of the block with zeros beside the image. Rows above and below are skipped by the taps' range; those
  /// that the copy has no place for are never read.
  void copy_rows(const Block& block, const float* image, int64_t top, int64_t left, float* copy) const {
    const int64_t row_step = plan_.copy_row_step, step = plan_.copy_column_step;
    const int64_t rows =
        row_step == 1 ? (block.rows - 1) * s_.stride_h + (s_.kernel_h - 1) * s_.dilation_h + 1 : block.rows;
    const int64_t columns =
        step == 1 ? (block.columns - 1) * s_.stride_w + (s_.kernel_w - 1) * s_.dilation_w + 1 : block.columns;
    const int64_t pixel = plan_.copy_pixel;
    const size_t bytes = size_t(s_.channels) * sizeof(float);
    const Range in = inside(left, columns, step, s_.width);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t iy = top + r * row_step;
      if (iy < 0 || iy >= s_.height) continue;
      float* to = copy + r * pixel * plan_.copy_columns;
      std::memset(to, 0, size_t(in.first * pixel) * sizeof(float));
      std::memset(to + in.last * pixel, 0, size_t((columns - in.last) * pixel) * sizeof(float));
      const float* from = image + iy * s_.x.row + (left + in.first * step) * s_.x.pixel;
      to += in.first * pixel;
      if (step == 1 && s_.x.pixel == s_.channels && pixel == s_.channels) {
        std::memcpy(to, from, bytes * size_t(in.last - in.first));
        continue;
      }
      for (int64_t c = in.first; c < in.last; ++c, to += pixel, from += step * s_.x.pixel) std::memcpy(to, from, bytes);
    }
  }

  void finish(const Block& block) const {
    const int64_t first = block.panel * plan_.width;
    const int64_t channels = std::min(s_.out_channels - first, block.panels * plan_.width);
    const int64_t channel = block.group * s_.out_channels + first;
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t oy = block.oy + r;
      float* y = b_.y + block.image * s_.y.image + oy * s_.y.row + block.ox * s_.y.pixel + channel;
      if (!plan_.flat) {
        b_.finished(b_.context, y, block.image, oy, block.ox, block.columns, channel, channels);
        continue;
      }
      for (int64_t done = 0; done < block.columns;) {
        const int64_t pixel = block.ox + done, line = pixel / plan_.flat_w, x = pixel % plan_.flat_w;
        const int64_t pixels = std::min(plan_.flat_w - x, block.columns - done);
        b_.finished(b_.context, y + done * s_.y.pixel, line / plan_.flat_h, line % plan_.flat_h, x, pixels, channel,
                    channels);
        done += pixels;
      }
    }
  }

  const DirectPlan& plan_;
  const ConvShape& s_;
  const ConvBuffers& b_;
  const DirectKernels kernels_;
  int64_t group_floats_;
};

}  // namespace

DirectPlan direct_plan(const ConvShape& shape, int threads) {
  DirectPlan plan;
  plan.shape = shape;
  plan.threads = std::max(1, threads);
  flatten(plan);
  const ConvShape& s = plan.shape;
  const DirectKernels kernels = direct_kernels();
  plan.max_tile = kernels.max_tile;
  plan.width = 2 * kernels.lanes;
  plan.panel_floats = s.depth() * plan.width;
  plan.panels = ceil_div(s.out_channels, plan.width);
  if (s.groups * s.images * s.out_h * s.out_w * plan.panels == 0) {
    plan.row_blocks = plan.column_blocks = plan.panel_blocks = 0;
    return plan;
  }

  const int64_t last_column = (s.out_w - 1) * s.stride_w - s.pad_left + (s.kernel_w - 1) * s.dilation_w;
  const bool sideways = s.pad_left > 0 || last_column >= s.width;
  // Pixels a multiple of 2 KiB apart share two sets of the first cache: 14 of them evict each other.
  const bool collide = s.x.pixel * s.stride_w % 512 == 0 && s.out_w > 1 && s.out_channels >= 32;
  const bool scattered = s.kernel_w > 1 && s.channels < 16 && (s.x.pixel != s.channels || s.dilation_w != 1);
  plan.copy = sideways || collide || scattered;
  plan.copy_pixel = s.channels % 512 == 0 ? s.channels + 16 : s.channels;
  plan.copy_column_step = s.kernel_w == 1 ? s.stride_w : 1;
  plan.copy_row_step = s.kernel_h == 1 ? s.stride_h : 1;

  plan.large_weights = plan.panel_floats * plan.panels * 4 > kLargeWeightBytes;
  const int64_t block_bytes = plan.large_weights ? kLargeBlockBytes : kBlockBytes;
  // Columns: whole rows if they are not long.
  const int64_t floats_a_column = std::max<int64_t>(1, s.channels * s.stride_w * (plan.flat ? 1 : s.kernel_h));
  int64_t most = std::max<int64_t>(4, block_bytes / 4 / floats_a_column / plan.max_tile) * plan.max_tile;
  most = std::min<int64_t>(most, 16 * plan.max_tile);
  if (plan.flat) {
    // A block for each thread at least, of equal sizes.
    const int64_t tiles = ceil_div(s.out_w, plan.max_tile);
    int64_t blocks = ceil_div(s.out_w, most);
    if (blocks > 1 || tiles >= 4 * plan.threads) blocks = ceil_div(blocks, plan.threads) * plan.threads;
    plan.block_columns = std::min(s.out_w, ceil_div(tiles, blocks) * plan.max_tile);
  } else {
    plan.block_columns = ceil_div(s.out_w, ceil_div(s.out_w, most));
  }
  plan.column_blocks = ceil_div(s.out_w, plan.block_columns);
  const int64_t columns_in = plan.copy_column_step == 1
                                 ? (plan.block_columns - 1) * s.stride_w + (s.kernel_w - 1) * s.dilation_w + 1
                                 : plan.block_columns;
  // Rows: as many as fit, in equal blocks.
  const int64_t row_bytes = columns_in * s.channels * 4;
  const int64_t row_step = plan.copy_row_step == 1 ? s.stride_h : 1;
  const int64_t beyond = plan.copy_row_step == 1 ? (s.kernel_h - 1) * s.dilation_h : 0;
  int64_t rows = std::max<int64_t>(1, (block_bytes / std::max<int64_t>(1, row_bytes) - beyond) / row_step);
  rows = std::min(rows, s.out_h);
  int64_t row_blocks = ceil_div(s.out_h, rows);
  if (plan.threads > 1 && s.out_h >= plan.threads)
    row_blocks = std::min(s.out_h, ceil_div(row_blocks, plan.threads) * plan.threads);
  plan.block_rows = ceil_div(s.out_h, row_blocks);
  plan.row_blocks = ceil_div(s.out_h, plan.block_rows);

  // Panels: threads share the weights where these are many, or where there are too few blocks.
  const int64_t blocks = s.groups * s.images * plan.row_blocks * plan.column_blocks;
  plan.block_panels = plan.panels;
  const bool heavy = plan.panel_floats * plan.panels * 4 > (512 << 10) && plan.panels % plan.threads == 0;
  if (plan.threads > 1 && s.groups == 1 && (heavy || blocks < plan.threads)) {
    plan.block_panels = ceil_div(plan.panels, plan.threads);
  }
  plan.panel_blocks = ceil_div(plan.panels, plan.block_panels);

  if (plan.copy) {
    plan.copy_columns = columns_in;
    plan.copy_rows = (plan.block_rows - 1) * row_step + beyond + 1;
    plan.thread_floats = ceil_div(plan.copy_rows * plan.copy_columns * plan.copy_pixel, 32) * 32;
  }
  return plan;
}

int64_t direct_weight_floats(int64_t groups, int64_t out_channels, int64_t depth) {
  const int64_t lanes = direct_kernels().lanes;
  return groups * ceil_div(out_channels, lanes) * lanes * depth;
}

void pack_direct_weights(const ConvShape& shape, const DirectWeights& source, float* packed) {
  const int64_t lanes = direct_kernels().lanes;
  for (int64_t g = 0; g < shape.groups; ++g) {
    for (int64_t first = 0; first < shape.out_channels; first += 2 * lanes) {
      const int64_t columns = std::min(shape.out_channels - first, 2 * lanes);
      const int64_t width = columns > lanes ? 2 * lanes : lanes;
      for (int64_t ky = 0; ky < shape.kernel_h; ++ky)
        for (int64_t kx = 0; kx < shape.kernel_w; ++kx)
          for (int64_t c = 0; c < shape.channels; ++c) {
            const float* from = source.data + g * source.group + first * source.out_channel + ky * source.tap_y +
                                kx * source.tap_x + c * source.channel;
            for (int64_t i = 0; i < width; ++i) *packed++ = i < columns ? from[i * source.out_channel] : 0.0f;
          }
    }
  }
}

void direct_conv(const DirectPlan& plan, const ConvBuffers& buffers, const ThreadPool& pool) {
  const int64_t units = plan.units();
  if (units == 0) return;
  const Runner runner(plan, buffers);
  const auto body = [&](int64_t begin, int64_t end, int thread) {
    float* copy = static_cast<float*>(buffers.workspace) + thread * plan.thread_floats;
    for (int64_t i = begin; i < end; ++i) runner.unit(i, copy);
  };
  if (plan.threads <= 1) return body(0, units, 0);
  pool.at_most(plan.threads).run(units, 1, std::ref(body));  // a reference: std::function allocates nothing
}

}  // namespace ridgeline::cpu
