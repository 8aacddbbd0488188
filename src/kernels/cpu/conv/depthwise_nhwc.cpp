// cpu.conv_depthwise_nhwc: one filter a channel, channels last. Bound by memory mostly: a row of output is made from
// rows that are still in cache, all channels of a few pixels at a time.
#include <algorithm>
#include <functional>
#include <memory>

#include "core/integer.h"
#include "kernels/cpu/conv/depthwise_micro.h"
#include "kernels/cpu/conv/epilogue.h"
#include "kernels/cpu/conv/estimate.h"
#include "kernels/cpu/conv/kernels.h"

namespace ridgeline::cpu {
namespace {

constexpr ImageOrder kOrder = ImageOrder::kChannelsLast;

struct State {
  ConvGeometry g;
  ImageStrides x, y;
  ConvEpilogue epilogue;
  int64_t weight_step = 0;   // floats from one tap to the next
  int64_t packed_bytes = 0;  // of weights that each run packs
  int64_t channel_blocks = 1, block_channels = 0;
  int64_t first_whole = 0, last_whole = 0;  // columns whose taps are all inside
};

int64_t weight_step(int64_t channels) { return ceil_div(channels, depthwise_lanes()) * depthwise_lanes(); }

void pack_weights(const ConvGeometry& g, const float* source, float* packed) {
  const int64_t step = weight_step(g.in_channels);
  for (int64_t tap = 0; tap < g.taps(); ++tap)
    for (int64_t c = 0; c < step; ++c) packed[tap * step + c] = c < g.in_channels ? source[c * g.taps() + tap] : 0.0f;
}

Support supports(const Problem& problem) {
  if (Support s = supports_conv(problem); !s.ok) return s;
  const ConvGeometry g = conv_geometry(problem);
  if (g.groups != g.in_channels || g.groups != g.out_channels) return no("takes one filter a channel (depthwise) only");
  if (g.groups == 1) return no("one channel: nothing to vectorize along");
  return supports_images(problem, kOrder);
}

std::shared_ptr<const State> make_state(const Problem& problem) {
  auto state = std::make_shared<State>();
  State& s = *state;
  s.g = conv_geometry(problem);
  s.x = *image_strides(problem.input(0).layout, kOrder);
  s.y = *image_strides(problem.output().layout, kOrder);
  s.epilogue = conv_epilogue(problem, kOrder);
  s.weight_step = weight_step(s.g.in_channels);
  if (!problem.input(1).is_constant) s.packed_bytes = s.weight_step * s.g.taps() * 4;
  const int64_t lanes = depthwise_lanes(), vectors = ceil_div(s.g.in_channels, lanes);
  if (problem.threads > 1 && s.g.images * s.g.out_h < 2 * problem.threads)
    s.channel_blocks = std::min<int64_t>(problem.threads, vectors);
  s.block_channels = ceil_div(vectors, s.channel_blocks) * lanes;
  s.channel_blocks = ceil_div(s.g.in_channels, s.block_channels);
  const int64_t reach = (s.g.kernel_w - 1) * s.g.dilation_w;
  s.first_whole = std::clamp<int64_t>(ceil_div(s.g.pad_left, s.g.stride_w), 0, s.g.out_w);
  const int64_t room = s.g.in_w - 1 - reach + s.g.pad_left;
  s.last_whole = room < 0 ? s.first_whole : std::clamp(room / s.g.stride_w + 1, s.first_whole, s.g.out_w);
  return state;
}

double estimate(const Problem& problem, const Tile&, const Ceilings& ceilings) {
  const ConvGeometry g = conv_geometry(problem);
  const int64_t lanes = depthwise_lanes();
  const double padded = double(ceil_div(g.in_channels, lanes) * lanes) / double(g.in_channels);
  return conv_estimate_ns(problem, ceilings, g.flops() * padded, 0.26);
}

int64_t workspace(const Problem& problem, const Tile&) { return make_state(problem)->packed_bytes; }

Packing packing(const Problem& problem, const Tile&, int input) {
  if (input != 1) return {};
  const ConvGeometry g = conv_geometry(problem);
  const int64_t step = weight_step(g.in_channels);
  return {fmt::format("taps {} of {} channels", g.taps(), step), step * g.taps() * 4};
}

void pack(const Problem& problem, const Tile&, int input, const Tensor& source, void* packed) {
  if (input == 1) pack_weights(conv_geometry(problem), source.as<float>(), static_cast<float*>(packed));
}

std::shared_ptr<const void> prepare(const Problem& problem, const Tile&) { return make_state(problem); }

/// Channels [channel, channel + channels) of one row of output.
void run_row(const State& s, const Buffers& buffers, const float* weights, int64_t image, int64_t oy, int64_t channel,
             int64_t channels) {
  const ConvGeometry& g = s.g;
  const int64_t top = oy * g.stride_h - g.pad_top;
  const int64_t first_y = top >= 0 ? 0 : std::min(g.kernel_h, ceil_div(-top, g.dilation_h));
  const int64_t last_y = top >= g.in_h ? first_y : std::min(g.kernel_h, (g.in_h - 1 - top) / g.dilation_h + 1);
  DepthwisePixels p;
  p.x_step = s.x.pixel * g.stride_w, p.row_step = s.x.row * g.dilation_h, p.tap_step = s.x.pixel * g.dilation_w;
  p.taps_h = std::max<int64_t>(0, last_y - first_y);
  p.weight_step = s.weight_step, p.weight_row = s.weight_step * g.kernel_w;
  const ConvEpilogue& e = s.epilogue;
  p.bias = e.bias >= 0 ? static_cast<const float*>(buffers.inputs[e.bias]) + channel : nullptr;
  p.low = e.low, p.high = e.high;
  p.y_step = s.y.pixel, p.residual_step = e.residual_strides.pixel;
  p.channels = channels;
  const float* x = static_cast<const float*>(buffers.inputs[0]) + image * s.x.image +
                   (top + first_y * g.dilation_h) * s.x.row + channel;
  const float* w = weights + first_y * p.weight_row + channel;
  float* y = static_cast<float*>(buffers.outputs[0]) + image * s.y.image + oy * s.y.row + channel;
  const float* residual = nullptr;
  if (e.residual >= 0)
    residual = static_cast<const float*>(buffers.inputs[e.residual]) + image * e.residual_strides.image +
               oy * e.residual_strides.row + channel;
  const auto columns = [&](int64_t ox, int64_t pixels) {
    const int64_t left = ox * g.stride_w - g.pad_left;
    const int64_t first = left >= 0 ? 0 : std::min(g.kernel_w, ceil_div(-left, g.dilation_w));
    const int64_t last = left >= g.in_w ? first : std::min(g.kernel_w, (g.in_w - 1 - left) / g.dilation_w + 1);
    p.taps_w = std::max<int64_t>(0, last - first);
    p.x = x + (left + first * g.dilation_w) * s.x.pixel;
    p.w = w + first * s.weight_step;
    p.y = y + ox * s.y.pixel;
    p.residual = residual ? residual + ox * e.residual_strides.pixel : nullptr;
    p.pixels = pixels;
    depthwise_pixels(p);
  };
  for (int64_t ox = 0; ox < s.first_whole; ++ox) columns(ox, 1);
  if (s.last_whole > s.first_whole) columns(s.first_whole, s.last_whole - s.first_whole);
  for (int64_t ox = s.last_whole; ox < g.out_w; ++ox) columns(ox, 1);
  if (e.program) apply_program(e, buffers, y, s.y.pixel, 1, image, channel, oy, 0, g.out_w, channels);
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const float* weights = static_cast<const float*>(buffers.inputs[1]);
  if (s.packed_bytes > 0) {
    pack_weights(s.g, weights, static_cast<float*>(buffers.workspace));
    weights = static_cast<const float*>(buffers.workspace);
  }
  const auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t oy = i % s.g.out_h, image = i / s.g.out_h % s.g.images, block = i / s.g.out_h / s.g.images;
      const int64_t channel = block * s.block_channels;
      run_row(s, buffers, weights, image, oy, channel, std::min(s.block_channels, s.g.in_channels - channel));
    }
  };
  pool.run(s.channel_blocks * s.g.images * s.g.out_h, 1, std::ref(body));
}

}  // namespace

const Kernel kConvDepthwiseNhwc = {
    .name = "cpu.conv_depthwise_nhwc",
    .op = "Conv",
    .supports = supports,
    .estimate = estimate,
    .workspace = workspace,
    .packing = packing,
    .pack = pack,
    .prepare = prepare,
    .run = run,
    .in_place = residual_in_place<kOrder>,
};

}  // namespace ridgeline::cpu
