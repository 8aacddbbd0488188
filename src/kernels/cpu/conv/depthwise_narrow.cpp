// cpu.conv_depthwise_narrow: one filter a channel, of bf16 with f32 sums or of bytes with exact integer ones, channels
// last. Everything is multiplied in f32: whole sums below 2^24 are exact there, and a dot-product instruction would
// want four taps of a channel side by side, whose shuffles cost more than the widening here. A block of rows is widened
// once, its padding written out, and goes through the tiles of the f32 kernel: widened at each load, with edges apart,
// 88 channels of 28x28 took 82 us where f32 takes 25.
#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>

#include "core/integer.h"
#include "kernels/cpu/conv/depthwise_micro.h"
#include "kernels/cpu/conv/depthwise_narrow_micro.h"
#include "kernels/cpu/conv/estimate.h"
#include "kernels/cpu/conv/kernels.h"
#include "kernels/cpu/conv/narrow.h"
#include "kernels/cpu/matmul/dot/dot_finish.h"
#include "kernels/cpu/matmul/dot/dot_micro.h"
#include "machine/probe.h"

namespace ridgeline::cpu {
namespace {

constexpr ImageOrder kOrder = ImageOrder::kChannelsLast;
constexpr int64_t kPixels = 32;  // of a block of sums: 4 KiB, in L1

struct State {
  ConvGeometry g;
  ImageStrides x, y;
  std::vector<NarrowRider> riders;
  std::unique_ptr<DotEpilogue> epilogue;
  int64_t weight_step = 0;                                      // floats from one tap to the next
  int64_t pixel = 0, cells = 0, row = 0;                        // of the copy: floats a pixel, pixels and floats a row
  int64_t block_rows = 1, row_blocks = 0;                       // of y
  int64_t thread_bytes = 0;                                     // the copy of a block's rows, and a block of sums
  int64_t at_weights = 0, at_terms = 0, at_lines = 0, end = 0;  // in the workspace, after the threads' own

  int64_t copied_rows() const { return (block_rows - 1) * g.stride_h + (g.kernel_h - 1) * g.dilation_h + 1; }
};

int64_t weight_step(const ConvGeometry& g) { return round_up(g.in_channels, kDotColumns); }
int64_t weight_bytes(const ConvGeometry& g) { return weight_step(g) * g.taps() * 4; }

void pack_weights(const ConvGeometry& g, DType dtype, const void* source, float* packed) {
  const int64_t step = weight_step(g);
  for (int64_t tap = 0; tap < g.taps(); ++tap)
    for (int64_t c = 0; c < step; ++c)
      packed[tap * step + c] = c < g.in_channels ? float(load_f64(dtype, source, c * g.taps() + tap)) : 0.0f;
}

Support supports(const Problem& p) {
  if (Support s = supports_narrow(p); !s.ok) return s;
  const ConvGeometry g = conv_geometry(p);
  if (g.groups != g.in_channels || g.groups != g.out_channels) return no("takes one filter a channel (depthwise) only");
  if (g.groups == 1) return no("one channel: nothing to vectorize along");
  if (sums_integers(p) && g.taps() > kMostNarrowTaps)
    return no("{} taps: sums in f32 are exact for at most {}", g.taps(), kMostNarrowTaps);
  if (!image_strides(p.input(0).layout, kOrder)) return no("x is not channels-last");
  return yes();
}

std::shared_ptr<const State> make_state(const Problem& p) {
  auto state = std::make_shared<State>();
  State& s = *state;
  s.g = conv_geometry(p);
  const ConvGeometry& g = s.g;
  s.x = *image_strides(p.input(0).layout, kOrder);
  s.y = *image_strides(p.output().layout, kOrder);
  s.riders = narrow_riders(p);
  const bool integers = sums_integers(p);
  s.epilogue =
      std::make_unique<DotEpilogue>(p, integers, kinds_of(s.riders), !integers && p.has(2) ? 2 : -1, g.out_channels);
  mark_wanted(s.riders, *s.epilogue);
  s.weight_step = weight_step(g);
  s.pixel = round_up(g.in_channels, 16);
  s.cells = std::max<int64_t>(0, (g.out_w - 1) * g.stride_w + (g.kernel_w - 1) * g.dilation_w + 1);
  s.row = s.cells * s.pixel;
  // A quarter of the second cache, and no fewer blocks than threads.
  const int64_t room = this_cpu().caches.l2 / 4 / std::max<int64_t>(4, s.row * 4) - (g.kernel_h - 1) * g.dilation_h;
  s.block_rows = std::clamp<int64_t>(room / g.stride_h, 1, std::max<int64_t>(1, g.out_h));
  if (g.images < p.threads) s.block_rows = std::min(s.block_rows, std::max<int64_t>(1, ceil_div(g.out_h, p.threads)));
  s.row_blocks = ceil_div(g.out_h, s.block_rows);
  s.thread_bytes = round_up(s.copied_rows() * s.row * 4, 64) + kPixels * kDotColumns * 4;
  s.at_weights = std::max(1, p.threads) * s.thread_bytes;
  s.at_terms = s.at_weights + weight_bytes(g);
  s.at_lines = s.at_terms + (integers ? s.weight_step * 4 : 0);
  s.end = s.at_lines + round_up(s.epilogue->bytes(), 64);
  return state;
}

double estimate(const Problem& p, const Tile&, const Ceilings& ceilings) {
  // As the f32 kernel; a vector is widened in 0.3 ns, and its sums go into y in 0.4.
  const ConvGeometry g = conv_geometry(p);
  const double padded = double(weight_step(g)) / double(g.in_channels);
  const double vectors = double(p.output().elements()) * 0.4 + double(p.input(0).elements()) * 0.3;
  return conv_estimate_ns(p, ceilings, g.flops() * padded, 0.26) + vectors * padded / 16 / std::max(1, p.threads);
}

int64_t workspace(const Problem& p, const Tile&) { return make_state(p)->end; }

Packing packing(const Problem& p, const Tile&, int input) {
  if (input != 1) return {};
  const ConvGeometry g = conv_geometry(p);
  return {fmt::format("taps {} of {} channels from {}", g.taps(), weight_step(g), name(p.input(1).dtype)),
          weight_bytes(g)};
}

void pack(const Problem& p, const Tile&, int input, const Tensor& source, void* packed) {
  if (input == 1) pack_weights(conv_geometry(p), source.dtype(), source.data(), static_cast<float*>(packed));
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) { return make_state(p); }

class Runner {
 public:
  Runner(const State& s, const Problem& p, const Buffers& buffers) : s_(s), g_(s.g), p_(p), buffers_(buffers) {
    char* workspace = static_cast<char*>(buffers.workspace);
    x_bytes_ = bytes_of(p.input(0).dtype, 1), y_bytes_ = bytes_of(p.output().dtype, 1);
    weights_ = static_cast<const float*>(buffers.inputs[1]);
    float* own = reinterpret_cast<float*>(workspace + s.at_weights);
    if (!p.input(1).is_constant) {
      pack_weights(g_, p.input(1).dtype, buffers.inputs[1], own);
      weights_ = own;
    }
    s.epilogue->bind(buffers, workspace + s.at_lines, bound_);
    if (sums_integers(p)) {
      zero_ = float(narrow_zero(p, buffers, 2, 0));
      take_zeros(own);
      place_terms(reinterpret_cast<int32_t*>(workspace + s.at_terms));
    }
  }

  /// Blocks of output rows are units.
  void unit(int64_t index, int thread) const {
    const int64_t first = index % s_.row_blocks * s_.block_rows, image = index / s_.row_blocks;
    const int64_t rows = std::min(s_.block_rows, g_.out_h - first);
    char* own = static_cast<char*>(buffers_.workspace) + thread * s_.thread_bytes;
    float* copy = reinterpret_cast<float*>(own);
    float* sums = reinterpret_cast<float*>(own + s_.thread_bytes - kPixels * kDotColumns * 4);
    const int64_t top = first * g_.stride_h - g_.pad_top;
    const int64_t copied = (rows - 1) * g_.stride_h + (g_.kernel_h - 1) * g_.dilation_h + 1;
    for (int64_t r = 0; r < copied; ++r) widen_row(image, top + r, copy + r * s_.row);
    DepthwisePixels n;
    n.x_step = s_.pixel * g_.stride_w, n.row_step = s_.row * g_.dilation_h, n.tap_step = s_.pixel * g_.dilation_w;
    n.taps_h = g_.kernel_h, n.taps_w = g_.kernel_w;
    n.weight_step = s_.weight_step, n.weight_row = s_.weight_step * g_.kernel_w;
    n.bias = n.residual = nullptr;
    n.residual_step = 0;
    n.y = sums, n.y_step = kDotColumns;
    n.low = -std::numeric_limits<float>::infinity(), n.high = std::numeric_limits<float>::infinity();
    for (int64_t c = 0; c < g_.in_channels; c += kDotColumns) {  // the rows' share of these channels stays in L1
      for (int64_t r = 0; r < rows; ++r) {
        n.channels = std::min<int64_t>(kDotColumns, s_.pixel - c);
        n.w = weights_ + c;
        for (int64_t ox = 0; ox < g_.out_w; ox += kPixels) {
          n.pixels = std::min(kPixels, g_.out_w - ox);
          n.x = copy + r * g_.stride_h * s_.row + ox * n.x_step + c;
          depthwise_pixels(n);
          if (s_.epilogue->integers()) whole_to_i32(sums, n.pixels * kDotColumns);
          finish(sums, image, first + r, ox, c, int(n.pixels), int(std::min(n.channels, g_.in_channels - c)));
        }
      }
    }
  }

 private:
  /// A row of x in f32 between its padding; 0 throughout where there is none.
  void widen_row(int64_t image, int64_t iy, float* to) const {
    const int64_t before = std::clamp<int64_t>(g_.pad_left, 0, s_.cells);
    const int64_t after =
        iy < 0 || iy >= g_.in_h ? before : std::clamp<int64_t>(g_.in_w + g_.pad_left, before, s_.cells);
    std::fill(to, to + before * s_.pixel, 0.0f);
    std::fill(to + after * s_.pixel, to + s_.row, 0.0f);
    if (after == before) return;
    const int64_t at = image * s_.x.image + iy * s_.x.row + (before - g_.pad_left) * s_.x.pixel;
    widen_pixels(p_.input(0).dtype, static_cast<const char*>(buffers_.inputs[0]) + at * x_bytes_, s_.x.pixel,
                 after - before, g_.in_channels, zero_, to + before * s_.pixel, s_.pixel);
  }
  // Zero points of the weights are taken from them.
  void take_zeros(float* own) {
    if (!p_.has(3)) return;
    const bool many = p_.input(3).elements() > 1;
    for (int64_t c = 0; c < g_.in_channels; ++c) {
      const float zero = float(narrow_zero(p_, buffers_, 3, many ? c : 0));
      for (int64_t tap = 0; tap < g_.taps(); ++tap)
        own[tap * s_.weight_step + c] = weights_[tap * s_.weight_step + c] - zero;
    }
    for (int64_t tap = 0; tap < g_.taps(); ++tap)
      std::fill(own + tap * s_.weight_step + g_.in_channels, own + (tap + 1) * s_.weight_step, 0.0f);
    weights_ = own;
  }
  void place_terms(int32_t* terms) {
    std::fill(terms, terms + s_.weight_step, 0);
    if (bound_.integer_bias) std::copy_n(bound_.integer_bias, g_.in_channels, terms);
    terms_ = terms;
  }

  void finish(const void* sums, int64_t image, int64_t oy, int64_t ox, int64_t channel, int rows, int cols) const {
    DotFinish f;
    f.sums = sums;
    f.rows = rows, f.cols = cols;
    f.y = static_cast<char*>(buffers_.outputs[0]) +
          (image * s_.y.image + oy * s_.y.row + ox * s_.y.pixel + channel) * y_bytes_;
    f.y_row = s_.y.pixel;
    if (terms_) f.terms = terms_ + channel;
    if (s_.epilogue->integers() && s_.epilogue->sums_alone()) {
      finish_i32(static_cast<const int32_t*>(sums), nullptr, f.terms, nullptr, rows, cols, static_cast<int32_t*>(f.y),
                 f.y_row);
      return;
    }
    TileInput operands[DotEpilogue::kMostOperands];
    place_riders(s_.riders, buffers_, image, channel, oy, ox, operands);
    s_.epilogue->finish(bound_, f, channel, operands);
  }

  const State& s_;
  const ConvGeometry& g_;
  const Problem& p_;
  const Buffers& buffers_;
  DotEpilogue::Bound bound_;
  const float* weights_ = nullptr;
  const int32_t* terms_ = nullptr;
  float zero_ = 0;
  int64_t x_bytes_ = 1, y_bytes_ = 1;
};

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& given) {
  const State& s = call.state_as<State>();
  const ThreadPool pool(std::min(given.threads(), std::max(1, call.problem.threads)));
  const Runner runner(s, call.problem, buffers);
  const auto body = [&runner](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i) runner.unit(i, thread);
  };
  pool.run(s.g.images * s.row_blocks, 1, std::cref(body));
}

constexpr Kernel narrow_kernel(std::string_view op) {
  return {.name = "cpu.conv_depthwise_narrow",
          .op = op,
          .supports = supports,
          .estimate = estimate,
          .workspace = workspace,
          .packing = packing,
          .pack = pack,
          .prepare = prepare,
          .run = run,
          .in_place = narrow_in_place,
          .version = 2};
}

}  // namespace

const Kernel kConvDepthwiseNarrow[2] = {narrow_kernel("Conv"), narrow_kernel("ConvInteger")};

}  // namespace ridgeline::cpu
