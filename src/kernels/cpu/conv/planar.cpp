#include "kernels/cpu/conv/planar.h"

#include <algorithm>
#include <functional>

#include "core/integer.h"
#include "kernels/cpu/conv/direct_micro.h"

namespace ridgeline::cpu {
namespace {

/// Gathered panels stay in the second-level cache while the weights go by.
constexpr int64_t kBlockBytes = 512 << 10;

class Runner {
 public:
  Runner(const PlanarPlan& plan, const ConvBuffers& buffers)
      : plan_(plan), s_(plan.shape), b_(buffers), kernels_(direct_kernels()) {}

  void unit(int64_t index, float* panels) const {
    const int64_t block = index % plan_.blocks;
    index /= plan_.blocks;
    const int64_t image = index % s_.images;
    index /= s_.images;
    const int64_t group = index % s_.groups, row_block = index / s_.groups;
    const int64_t first_panel = block * plan_.block_panels;
    const int64_t count = std::min(plan_.block_panels, plan_.panels - first_panel);
    const int64_t first_row = row_block * plan_.block_rows;
    const int64_t rows = std::min(plan_.block_rows, s_.out_channels - first_row);
    const float* x = b_.x + image * s_.x.image + group * s_.channels * s_.x.channel;
    const int64_t panel_floats = s_.depth() * plan_.width;
    if (s_.keeps_pixels()) {
      const int64_t pixel = first_panel * plan_.width, last = pixels_of(first_panel + count - 1);
      gather_pixels(s_, x, pixel, (count - 1) * plan_.width + last, plan_.width, vectors_of(last) * kernels_.lanes,
                    panel_floats, panels);
    } else {
      for (int64_t p = 0; p < count; ++p) {
        const int64_t pixels = pixels_of(first_panel + p);
        gather_panel(s_, x, (first_panel + p) * plan_.width, pixels, vectors_of(pixels) * kernels_.lanes,
                     panels + p * panel_floats);
      }
    }
    const int64_t tiles = ceil_div(rows, int64_t(kernels_.max_tile));
    const int64_t base = rows / tiles, longer = rows % tiles;
    int64_t row = first_row;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t tile_rows = base + (t < longer);
      for (int64_t p = 0; p < count; ++p)
        tile(image, group * s_.out_channels + row, tile_rows, first_panel + p, panels + p * panel_floats);
      row += tile_rows;
    }
    if (b_.finished) finish(image, group * s_.out_channels + first_row, rows, first_panel * plan_.width, count);
  }

 private:
  int64_t pixels_of(int64_t panel) const { return std::min(plan_.width, s_.pixels() - panel * plan_.width); }
  int vectors_of(int64_t pixels) const { return pixels > kernels_.lanes ? 2 : 1; }

  void tile(int64_t image, int64_t row, int64_t rows, int64_t panel, const float* x) const {
    const int64_t half = (rows + 1) / 2, pixel = panel * plan_.width;
    DirectTile g;
    g.cols = pixels_of(panel);
    g.a = b_.weights + row * b_.weight_row, g.a_step = b_.weight_row, g.a_high = g.a + half * g.a_step;
    g.outer = g.inner = 1, g.outer_step = g.inner_step = 0, g.run = s_.depth();
    g.w = x;
    g.y = b_.y + image * s_.y.image + row * s_.y.channel + pixel, g.y_step = s_.y.channel,
    g.y_high = g.y + half * g.y_step;
    g.bias = nullptr, g.row_bias = b_.bias ? b_.bias + row : nullptr;
    g.residual = g.residual_high = nullptr, g.residual_step = s_.residual.channel;
    if (b_.residual) {
      g.residual = b_.residual + image * s_.residual.image + row * s_.residual.channel + pixel;
      g.residual_high = g.residual + half * g.residual_step;
    }
    g.low = b_.low, g.high = b_.high;
    (vectors_of(g.cols) == 2 ? kernels_.two : kernels_.one)[rows](g);
  }

  void finish(int64_t image, int64_t row, int64_t rows, int64_t pixel, int64_t panels) const {
    const int64_t end = std::min(s_.pixels(), pixel + panels * plan_.width);
    while (pixel < end) {
      const int64_t oy = pixel / s_.out_w, ox = pixel % s_.out_w, run = std::min(s_.out_w - ox, end - pixel);
      float* y = b_.y + image * s_.y.image + row * s_.y.channel + pixel;
      b_.finished(b_.context, y, image, oy, ox, run, row, rows);
      pixel += run;
    }
  }

  const PlanarPlan& plan_;
  const ConvShape& s_;
  const ConvBuffers& b_;
  const DirectKernels kernels_;
};

}  // namespace

int64_t planar_row_floats(int64_t depth) { return depth % 512 == 0 ? depth + 16 : depth; }

PlanarPlan planar_plan(const ConvShape& shape, int threads) {
  PlanarPlan plan;
  plan.shape = shape;
  plan.threads = std::max(1, threads);
  ConvShape& s = plan.shape;
  plan.width = 2 * direct_kernels().lanes;
  plan.row_floats = planar_row_floats(s.depth());
  plan.panels = ceil_div(s.pixels(), plan.width);
  if (s.images * s.groups * s.out_channels * plan.panels == 0) return plan;
  const int64_t panel_bytes = s.depth() * plan.width * 4;
  plan.block_panels = std::clamp<int64_t>(kBlockBytes / panel_bytes, 1, plan.panels);
  const auto even = [&] {
    plan.blocks = ceil_div(plan.panels, plan.block_panels);
    plan.block_panels = ceil_div(plan.panels, plan.blocks);
    plan.blocks = ceil_div(plan.panels, plan.block_panels);
  };
  even();
  // Enough units for the threads, of equal sizes: fewer panels a block, then parts of the output channels.
  const int64_t others = s.images * s.groups;
  if (plan.threads > 1 && others % plan.threads != 0 && plan.panels >= 2 * plan.threads) {
    plan.block_panels = ceil_div(plan.panels, ceil_div(plan.blocks, plan.threads) * plan.threads);
    even();
  }
  plan.row_blocks = 1, plan.block_rows = s.out_channels;
  if (plan.threads > 1 && others * plan.blocks < plan.threads) {
    plan.block_rows = ceil_div(s.out_channels, plan.threads);
    plan.row_blocks = ceil_div(s.out_channels, plan.block_rows);
  }
  plan.thread_floats = plan.block_panels * s.depth() * plan.width;
  return plan;
}

void planar_conv(const PlanarPlan& plan, const ConvBuffers& buffers, const ThreadPool& pool) {
  const int64_t units = plan.units();
  if (units == 0) return;
  const Runner runner(plan, buffers);
  const auto body = [&](int64_t begin, int64_t end, int thread) {
    float* panels = static_cast<float*>(buffers.workspace) + thread * plan.thread_floats;
    for (int64_t i = begin; i < end; ++i) runner.unit(i, panels);
  };
  if (plan.threads <= 1) return body(0, units, 0);
  pool.at_most(plan.threads).run(units, 1, std::ref(body));
}

}  // namespace ridgeline::cpu
