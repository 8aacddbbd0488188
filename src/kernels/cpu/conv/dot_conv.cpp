// Runs a DotConvPlan: copies a block's cells, then each panel of weights over all of the block's pixels.
#include <algorithm>
#include <cstring>
#include <functional>

#include "core/integer.h"
#include "kernels/cpu/conv/dot_plan.h"
#include "kernels/cpu/matmul/dot/dot_finish.h"

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
    if (u.first_panel == u.last_panel) return;
    run(u, static_cast<uint8_t*>(c_.workspace) + thread * p_.thread_bytes);
  }

 private:
  void run(const Unit& u, uint8_t* memory) const {
    uint8_t* copy = memory;
    int32_t* row_sums = reinterpret_cast<int32_t*>(memory + p_.copy_bytes);
    void* sums = memory + p_.copy_bytes + p_.row_sums_bytes;
    const int64_t pixels = (u.rows - 1) * p_.width + g_.out_w;
    const DotKernels& kernels = dot_kernels(p_.type, pixels >= 8);
    const uint8_t* image = c_.x + (u.image * p_.x.image + u.group * g_.group_in() * p_.x.channel) * p_.element;
    DotRows a;
    a.blocks = p_.cell_blocks;
    if (p_.on_x) {
      a.data = image + u.oy * p_.x.row * p_.element;
      a.pitch = p_.x.pixel * p_.element;
    } else {
      copy_cells(u, image, copy);
      a.data = copy;
      a.pitch = p_.step;
      a.taps = p_.taps();
      a.offsets = p_.offsets.data();
    }
    if (c_.want_row_sums) sum_rows(a, pixels, row_sums);

    const int64_t tiles = ceil_div(pixels, kernels.rows);
    // Of x itself no more may be read than is there: AMX takes sixteen rows.
    const int64_t there = kernels.enter && p_.on_x ? (g_.in_h - u.oy) * g_.in_w : INT64_MAX;
    if (kernels.enter) kernels.enter();
    for (int64_t panel = u.first_panel; panel < u.last_panel; ++panel) {
      const uint8_t* b = c_.panels + u.group * p_.group_bytes() + panel * p_.panel_bytes;
      // A share of the next panel with each tile, as in dot_gemm.cpp.
      const int64_t share = panel + 1 < u.last_panel ? p_.panel_bytes / tiles / 64 * 64 : 0;
      int64_t pixel = 0;
      for (int64_t t = 0; t < tiles; ++t) {
        const int64_t size = kernels.enter ? std::min<int64_t>(kernels.rows, pixels - pixel)
                                           : pixels * (t + 1) / tiles - pixels * t / tiles;
        for (int64_t i = 0; i < share; i += 64) __builtin_prefetch(b + p_.panel_bytes + t * share + i, 0, 2);
        DotRows tile = a;
        tile.data += pixel * a.pitch;
        if (pixel + round_up(size, 16) > there) {
          if (panel == u.first_panel)
            for (int64_t r = 0; r < size; ++r)
              std::memcpy(copy + r * p_.cell, tile.data + r * a.pitch, size_t(p_.cell));
          tile.data = copy;
          tile.pitch = p_.cell;
        }
        kernels.tile(tile, b, int(size), sums);
        finish(u, sums, c_.want_row_sums ? row_sums : nullptr, pixel, int(size), panel);
        pixel += size;
      }
    }
    if (kernels.leave) kernels.leave();
  }

  void finish(const Unit& u, const void* sums, const int32_t* row_sums, int64_t pixel, int size, int64_t panel) const {
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
        block.row_sums = row_sums ? row_sums + at : nullptr;
        block.oy = u.oy + row, block.ox = ox;
        block.rows = rows;
        c_.finish(c_.context, block);
      }
      done += int(left);
    }
  }

  void sum_rows(const DotRows& a, int64_t pixels, int32_t* sums) const {
    for (int64_t i = 0; i < pixels; ++i) {
      uint32_t sum = 0;
      for (int64_t t = 0; t < a.taps; ++t)
        sum += uint32_t(sum_u8(a.data + i * a.pitch + a.offsets[t], a.blocks * kDotBlock));
      sums[i] = int32_t(sum);
    }
  }

  // ---- copies

  void copy_cells(const Unit& u, const uint8_t* image, uint8_t* copy) const {
    const int64_t top = u.oy * g_.stride_h - g_.pad_top;
    for (int64_t phase = 0; phase < g_.stride_h; ++phase) {
      const int64_t set = p_.phase[size_t(phase)];
      if (set < 0) continue;
      for (int64_t r = 0; r < u.rows + p_.phase_rows - p_.block_rows; ++r) {
        const int64_t iy = top + r * g_.stride_h + phase;
        uint8_t* to = copy + (set * p_.phase_rows + r) * p_.row_bytes;
        if (iy < 0 || iy >= g_.in_h)
          fill(to, p_.cells, 0, g_.group_in() * (p_.wide ? g_.kernel_w : 1) * p_.element);
        else
          copy_row(image, iy, to);
      }
    }
  }

  /// `bytes` from `first` on of each of n cells stand for 0; the rest of a cell is multiplied by nothing.
  void fill(uint8_t* to, int64_t n, int64_t first, int64_t bytes) const {
    if (first == 0 && (bytes == p_.cell || c_.zero == 0)) {
      std::memset(to, c_.zero, size_t(n * p_.cell));
      return;
    }
    for (int64_t i = 0; i < n; ++i, to += p_.cell) {
      std::memset(to + first, c_.zero, size_t(bytes));
      std::memset(to + first + bytes, 0, size_t(p_.cell - first - bytes));
    }
  }

  /// A pixel's channels.
  void copy_channels(const uint8_t* from, uint8_t* to) const {
    const int64_t channels = g_.group_in();
    if (!p_.x_channels_last) {
      const int64_t stride = p_.x.channel * p_.element;
      for (int64_t c = 0; c < channels; ++c) {
        if (p_.element == 2)
          std::memcpy(to + 2 * c, from + c * stride, 2);
        else
          to[c] = uint8_t(from[c * stride] ^ (p_.flips ? 0x80 : 0));
      }
    } else if (p_.flips) {
      for (int64_t c = 0; c < channels; ++c) to[c] = uint8_t(from[c] ^ 0x80);
    } else {
      std::memcpy(to, from, size_t(channels * p_.element));
    }
  }

  void copy_row(const uint8_t* image, int64_t iy, uint8_t* to) const {
    const int64_t bytes = g_.group_in() * p_.element, pixel = p_.x.pixel * p_.element;
    const uint8_t* from = image + iy * p_.x.row * p_.element;
    if (p_.wide) return copy_wide_row(from, iy, to);
    const int64_t before = std::clamp<int64_t>(g_.pad_left, 0, p_.cells);
    const int64_t after = std::clamp<int64_t>(g_.in_w + g_.pad_left, before, p_.cells);
    fill(to, before, 0, bytes);
    fill(to + after * p_.cell, p_.cells - after, 0, bytes);
    from += (before - g_.pad_left) * pixel;
    to += before * p_.cell;
    if (p_.x_channels_last && !p_.flips && pixel == bytes && bytes == p_.cell) {
      std::memcpy(to, from, size_t((after - before) * bytes));
      return;
    }
    for (int64_t c = before; c < after; ++c, from += pixel, to += p_.cell) {
      copy_channels(from, to);
      std::memset(to + bytes, 0, size_t(p_.cell - bytes));
    }
  }

  /// A cell of 64 bytes of which `bytes` are wanted; all 64 are read.
  static void copy_line(const uint8_t* from, const uint8_t* mask, uint8_t* to) {
    uint64_t words[kDotBlock / 8], kept[kDotBlock / 8];
    std::memcpy(words, from, kDotBlock);
    std::memcpy(kept, mask, kDotBlock);
#pragma GCC unroll 8
    for (int i = 0; i < kDotBlock / 8; ++i) words[i] &= kept[i];
    std::memcpy(to, words, kDotBlock);
  }

  void copy_wide_row(const uint8_t* from, int64_t iy, uint8_t* to) const {
    const int64_t bytes = g_.group_in() * p_.element, pixel = p_.x.pixel * p_.element, all = bytes * g_.kernel_w;
    const bool runs = g_.dilation_w == 1 && p_.x_channels_last && !p_.flips && pixel == bytes;
    // Whole lines may be read as far as the image goes on behind them.
    int64_t lines = -1;  // up to this pixel
    uint8_t mask[kDotBlock] = {};
    if (runs && p_.cell == kDotBlock && p_.x.row * p_.element >= pixel * g_.in_w) {
      const int64_t behind = (g_.in_h - 1 - iy) * p_.x.row * p_.element + g_.in_w * pixel - kDotBlock;
      lines = behind < 0 ? -1 : behind / pixel;
      std::memset(mask, 0xff, size_t(all));
    }
    for (int64_t ox = 0; ox < g_.out_w; ++ox, to += p_.cell) {
      const int64_t left = ox * g_.stride_w - g_.pad_left;
      if (runs && left >= 0 && left + g_.kernel_w <= g_.in_w) {
        if (left <= lines) {
          copy_line(from + left * pixel, mask, to);
        } else {
          std::memset(to + all, 0, size_t(p_.cell - all));
          std::memcpy(to, from + left * pixel, size_t(all));
        }
        continue;
      }
      std::memset(to + all, 0, size_t(p_.cell - all));
      for (int64_t kx = 0; kx < g_.kernel_w; ++kx) {
        const int64_t ix = left + kx * g_.dilation_w;
        if (ix < 0 || ix >= g_.in_w)
          std::memset(to + kx * bytes, c_.zero, size_t(bytes));
        else
          copy_channels(from + ix * pixel, to + kx * bytes);
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
