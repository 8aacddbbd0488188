// Runs a DotConvPlan: copies a block's cells, then each panel of weights over all of the block's pixels.
#include <algorithm>
#include <cstring>
#include <functional>

#include "core/integer.h"
#include "kernels/cpu/conv/dot_plan.h"
#include "kernels/cpu/matmul/dot/dot_finish.h"
#include "kernels/cpu/matmul/dot/dot_rows.h"
#include "kernels/cpu/matmul/dot/dot_sweep.h"

namespace ridgeline::cpu {
namespace {

struct Unit {
  int64_t group, image, oy, rows, first_panel, last_panel;
};

class Runner {
 public:
  Runner(const DotConvPlan& plan, const DotConvCall& call) : p_(plan), g_(plan.g), c_(call) {}

  void unit(int64_t index, int thread) const {
    Unit u;
    const int64_t part = index % p_.panel_parts;
    index /= p_.panel_parts;
    u.oy = index % p_.row_blocks * p_.block_rows;
    index /= p_.row_blocks;
    u.image = index % g_.images;
    u.group = index / g_.images;
    u.rows = std::min(p_.block_rows, g_.out_h - u.oy);
    u.first_panel = p_.panels * part / p_.panel_parts;
    u.last_panel = p_.panels * (part + 1) / p_.panel_parts;
    if (u.first_panel == u.last_panel || g_.out_w == 0) return;
    run(u, static_cast<uint8_t*>(c_.workspace) + thread * p_.thread_bytes);
  }

 private:
  /// Output pixels of a unit: pixel i's lines are at data + i * pitch + offsets[step].
  struct Pixels {
    const Unit& unit;
    const uint8_t* data;
    int64_t pitch, count;
    const int32_t* row_sums;
    void* sums;
  };

  void run(const Unit& u, uint8_t* memory) const {
    int32_t* row_sums = reinterpret_cast<int32_t*>(memory + p_.at_row_sums);
    const uint8_t* image = c_.x + (u.image * p_.x.image + u.group * g_.group_in() * p_.x.channel) * p_.element;
    Pixels a{u,
             memory,
             kDotBlock,
             (u.rows - 1) * p_.width + g_.out_w,
             c_.want_row_sums ? row_sums : nullptr,
             memory + p_.at_sums};
    if (p_.on_x) {
      a.data = image + u.oy * p_.x.row * p_.element;
      a.pitch = p_.x.pixel * p_.element;
    } else {
      copy_cells(u, image, memory);
    }
    if (a.row_sums) sum_rows(a, row_sums);
    const DotPieceKernel amx =
        a.count < 8 ? nullptr : dot_piece_kernel(p_.type == DotType::kBf16 ? DotPieceType::kBf16 : DotPieceType::kU8S8);
    amx ? sweep(a, amx, memory) : tiles(a);
  }

  const uint8_t* panels_of(const Unit& u) const { return c_.panels + u.group * p_.group_bytes(); }

  struct Finished {
    const Runner* runner;
    const Pixels* pixels;
  };

  void sweep(const Pixels& a, DotPieceKernel kernel, uint8_t* memory) const {
    const Unit& u = a.unit;
    const Finished context{this, &a};
    DotSweep s;
    s.kernel = kernel;
    s.a = a.data;
    s.rows = a.count;
    s.row_bytes = s.pitch = a.pitch;
    s.offsets = p_.offsets.data();
    s.panels = panels_of(u);
    s.blocks = p_.steps();
    s.panel_bytes = p_.panel_bytes;
    s.first = u.first_panel, s.last = u.last_panel;
    s.again = u.oy + u.rows < g_.out_h;
    s.rows_first = p_.rows_first;
    s.keep = reinterpret_cast<char*>(memory + p_.at_keep);
    s.sums = static_cast<char*>(a.sums);
    if (p_.on_x) {  // of x itself no more may be read than is there
      const int64_t there = (g_.in_h - u.oy) * g_.in_w, last = (a.count - 1) / kDotSweepRows * kDotSweepRows;
      if (last + round_up(a.count - last, 16) > there) {
        for (int64_t i = last; i < a.count; ++i)
          std::memcpy(memory + (i - last) * p_.cell(), a.data + i * a.pitch, size_t(p_.cell()));
        s.direct_rows = last;
        s.rest = memory;
        s.rest_pitch = p_.cell();
      }
    }
    s.finish = [](const void* given, int64_t row, int rows, int64_t panel, void* sums) {
      const Finished& f = *static_cast<const Finished*>(given);
      f.runner->finish(*f.pixels, sums, row, rows, panel);
    };
    s.context = &context;
    dot_pieces_enter();
    dot_sweep(s);
    dot_pieces_leave();
  }

  void tiles(const Pixels& a) const {
    const Unit& u = a.unit;
    const DotKernels& kernels = dot_kernels(p_.type);
    const int64_t count = ceil_div(a.count, kernels.rows);
    for (int64_t panel = u.first_panel; panel < u.last_panel; ++panel) {
      const uint8_t* b = panels_of(u) + panel * p_.panel_bytes;
      // A share of the next panel with each tile, as in dot_gemm.cpp.
      const int64_t share = panel + 1 < u.last_panel ? p_.panel_bytes / count / 64 * 64 : 0;
      for (int64_t t = 0; t < count; ++t) {
        const int64_t pixel = a.count * t / count;
        const int size = int(a.count * (t + 1) / count - pixel);
        for (int64_t i = 0; i < share; i += 64) __builtin_prefetch(b + p_.panel_bytes + t * share + i, 0, 2);
        kernels.tile({a.data + pixel * a.pitch, a.pitch, 1, p_.steps(), p_.offsets.data()}, b, size, a.sums);
        finish(a, a.sums, pixel, size, panel);
      }
    }
  }

  void finish(const Pixels& a, const void* sums, int64_t pixel, int size, int64_t panel) const {
    const Unit& u = a.unit;
    DotConvBlock block;
    block.image = u.image;
    block.channel = u.group * g_.group_out() + panel * kDotColumns;
    block.cols = int(std::min<int64_t>(kDotColumns, g_.group_out() - panel * kDotColumns));
    for (int done = 0; done < size;) {
      const int64_t at = pixel + done, row = at / p_.width, ox = at % p_.width;
      const int64_t left = p_.flat ? size - done : std::min<int64_t>(size - done, p_.width - ox);
      const int rows = int(p_.flat ? left : std::min<int64_t>(left, g_.out_w - ox));
      if (rows > 0) {
        block.sums = static_cast<const char*>(sums) + int64_t(done) * kDotColumns * 4;
        block.row_sums = a.row_sums ? a.row_sums + at : nullptr;
        block.oy = u.oy + row, block.ox = ox;
        block.rows = rows;
        c_.finish(c_.context, block);
      }
      done += int(left);
    }
  }

  void sum_rows(const Pixels& a, int32_t* sums) const {
    for (int64_t i = 0; i < a.count; ++i) {
      uint32_t sum = 0;
      for (const int64_t offset : p_.offsets) sum += uint32_t(sum_u8(a.data + i * a.pitch + offset, kDotBlock));
      sums[i] = int32_t(sum);
    }
  }

  // ---- copies

  void copy_cells(const Unit& u, const uint8_t* image, uint8_t* copy) const {
    const int64_t top = u.oy * g_.stride_h - g_.pad_top;
    for (int64_t phase = 0; phase < g_.stride_h; ++phase) {
      const int64_t set = p_.phase_y[size_t(phase)];
      if (set < 0) continue;
      for (int64_t r = 0; r < p_.copied_rows(u.rows); ++r) {
        const int64_t iy = top + r * g_.stride_h + phase;
        const uint8_t* from = iy < 0 || iy >= g_.in_h ? nullptr : image + iy * p_.x.row * p_.element;
        uint8_t* to = copy + (set * p_.phases_x * p_.phase_rows + r) * p_.row_bytes();
        p_.wide ? copy_wide_row(from, to) : copy_row(from, to);
      }
    }
  }

  /// n cells of which `bytes` stand for 0; the rest of a cell is multiplied by nothing.
  void fill(uint8_t* to, int64_t n, int64_t bytes) const {
    for (int64_t b = 0; b < p_.cell_blocks; ++b, to += p_.plane_bytes, bytes -= kDotBlock) {
      if (bytes >= kDotBlock || c_.zero == 0) {
        std::memset(to, c_.zero, size_t(n * kDotBlock));
        continue;
      }
      for (int64_t i = 0; i < n; ++i) {
        std::memset(to + i * kDotBlock, c_.zero, size_t(bytes));
        std::memset(to + i * kDotBlock + bytes, 0, size_t(kDotBlock - bytes));
      }
    }
  }

  /// `bytes` of n cells, `stride` bytes apart, each a run.
  void copy_runs(const uint8_t* from, int64_t stride, int64_t n, int64_t bytes, uint8_t* to) const {
    for (int64_t b = 0; b < p_.cell_blocks; ++b, from += kDotBlock, to += p_.plane_bytes, bytes -= kDotBlock)
      dot_copy_lines(from, stride, n, int(std::min<int64_t>(bytes, kDotBlock)), p_.flips, to);
  }

  /// A pixel's channels as bytes [at, ..) of a cell, or what stands for 0 (`from` null).
  void copy_pixel(const uint8_t* from, int64_t at, uint8_t* cell) const {
    const int64_t stride = p_.x.channel * p_.element;
    for (int64_t c = 0; c < g_.group_in(); ++c, at += p_.element) {
      uint8_t* to = cell + at / kDotBlock * p_.plane_bytes + at % kDotBlock;
      if (!from)
        std::memset(to, c_.zero, size_t(p_.element));
      else if (p_.element == 2)
        std::memcpy(to, from + c * stride, 2);
      else
        *to = uint8_t(from[c * stride] ^ (p_.flips ? 0x80 : 0));
    }
  }
  void clear_cell(uint8_t* to) const {
    for (int64_t b = 0; b < p_.cell_blocks; ++b) std::memset(to + b * p_.plane_bytes, 0, kDotBlock);
  }

  /// `from` null: outside the image.
  void copy_row(const uint8_t* from, uint8_t* to) const {
    const int64_t bytes = g_.group_in() * p_.element, pixel = p_.x.pixel * p_.element, stride = g_.stride_w;
    for (int64_t phase = 0; phase < stride; ++phase) {
      const int64_t set = p_.phase_x[size_t(phase)];
      if (set < 0) continue;
      uint8_t* cells = to + set * p_.phase_rows * p_.row_bytes();
      // Cell i is column i * stride + phase - pad_left.
      const int64_t shift = g_.pad_left - phase;
      int64_t before = 0, after = 0;
      if (from) {
        before = std::clamp<int64_t>(ceil_div(std::max<int64_t>(shift, 0), stride), 0, p_.width);
        const int64_t end = g_.in_w + shift;  // first i * stride outside
        after = std::clamp<int64_t>(end > 0 ? ceil_div(end, stride) : 0, before, p_.width);
      }
      fill(cells, before, bytes);
      fill(cells + after * kDotBlock, p_.width - after, bytes);
      if (before == after) continue;
      const uint8_t* first = from + (before * stride - shift) * pixel;
      cells += before * kDotBlock;
      if (p_.x_channels_last) {
        copy_runs(first, stride * pixel, after - before, bytes, cells);
        continue;
      }
      for (int64_t i = before; i < after; ++i, first += stride * pixel, cells += kDotBlock) {
        clear_cell(cells);
        copy_pixel(first, 0, cells);
      }
    }
  }

  void copy_wide_row(const uint8_t* from, uint8_t* to) const {
    const int64_t bytes = g_.group_in() * p_.element, pixel = p_.x.pixel * p_.element, stride = g_.stride_w;
    if (!from) return fill(to, p_.width, bytes * g_.kernel_w);
    // Output pixels [first, last) whose taps are one run within the row.
    const bool runs = p_.x_channels_last && (g_.kernel_w == 1 || (g_.dilation_w == 1 && pixel == bytes));
    int64_t first = 0, last = 0;
    if (runs) {
      first = std::min(ceil_div(g_.pad_left, stride), g_.out_w);
      const int64_t end = g_.in_w - g_.kernel_w + g_.pad_left;  // the last left edge that fits
      last = std::clamp<int64_t>(end < 0 ? 0 : end / stride + 1, first, g_.out_w);
      copy_runs(from + (first * stride - g_.pad_left) * pixel, stride * pixel, last - first, bytes * g_.kernel_w,
                to + first * kDotBlock);
    }
    for (int64_t ox = 0; ox < g_.out_w; ++ox) {
      if (ox == first && ox < last) ox = last;
      if (ox == g_.out_w) break;
      clear_cell(to + ox * kDotBlock);
      for (int64_t kx = 0; kx < g_.kernel_w; ++kx) {
        const int64_t ix = ox * stride - g_.pad_left + kx * g_.dilation_w;
        copy_pixel(ix < 0 || ix >= g_.in_w ? nullptr : from + ix * pixel, kx * bytes, to + ox * kDotBlock);
      }
    }
  }

  const DotConvPlan& p_;
  const ConvGeometry& g_;
  const DotConvCall& c_;
};

}  // namespace

void dot_conv(const DotConvPlan& plan, const DotConvCall& call, const ThreadPool& given) {
  const ThreadPool pool(std::min(given.threads(), plan.threads));
  const Runner runner(plan, call);
  const auto body = [&runner](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) runner.unit(i, thread);
  };
  pool.run(plan.units(), 1, std::cref(body));
}

}  // namespace ridgeline::cpu
