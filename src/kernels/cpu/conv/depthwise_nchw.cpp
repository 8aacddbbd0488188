// cpu.conv_depthwise_nchw: each input channel by its own filters, plain NCHW, vectors along pixels. A strip of the
// plane is copied with its padding into the first-level cache, one phase of the stride after the other, so that every
// load is contiguous and none needs a mask: the copy costs about one of the nine taps of a 3x3 filter.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "core/integer.h"
#include "kernels/cpu/conv/depthwise_micro.h"
#include "kernels/cpu/conv/epilogue.h"
#include "kernels/cpu/conv/estimate.h"
#include "kernels/cpu/conv/kernels.h"

namespace ridgeline::cpu {
namespace {

constexpr ImageOrder kOrder = ImageOrder::kPlanar;

constexpr int64_t kStripFloats = 6 << 10;

struct State {
  ConvGeometry g;
  ImageStrides x, y;
  ConvEpilogue epilogue;
  int64_t lanes = 1;
  int64_t phase_columns = 0;  // columns of one phase of a row of the copy, with room to read on
  int64_t copy_row = 0;       // floats of a row of the copy: all phases
  int64_t strip_rows = 1, strips = 0;
  int64_t copy_rows = 0;
  int64_t thread_floats = 0;
  std::vector<int32_t> offsets;  // of the taps within the copy
  bool rows_are_one = false;     // for the program: nothing stands between the rows of a plane
  int64_t planes_together = 1;   // whole planes that the program then takes at once
};

Support supports(const Problem& problem) {
  if (Support s = supports_conv(problem); !s.ok) return s;
  const ConvGeometry g = conv_geometry(problem);
  if (g.groups != g.in_channels) return no("takes one input channel a group (depthwise) only");
  return supports_images(problem, kOrder);
}

std::shared_ptr<const State> make_state(const Problem& problem) {
  auto state = std::make_shared<State>();
  State& s = *state;
  s.g = conv_geometry(problem);
  const ConvGeometry& g = s.g;
  s.x = *image_strides(problem.input(0).layout, kOrder);
  s.y = *image_strides(problem.output().layout, kOrder);
  s.epilogue = conv_epilogue(problem, kOrder);
  s.lanes = depthwise_lanes();
  if (g.out_h == 0 || g.out_w == 0) return state;
  s.phase_columns = ceil_div(g.out_w, s.lanes) * s.lanes + (g.kernel_w - 1) * g.dilation_w / g.stride_w + 1;
  s.copy_row = s.phase_columns * std::min(g.stride_w, (g.kernel_w - 1) * g.dilation_w + 1);
  const int64_t reach = (g.kernel_h - 1) * g.dilation_h;
  s.strip_rows =
      std::clamp<int64_t>((kStripFloats / s.copy_row - reach) / g.stride_h, std::min<int64_t>(8, g.out_h), g.out_h);
  s.strips = ceil_div(g.out_h, s.strip_rows);
  s.strip_rows = ceil_div(g.out_h, s.strips);
  s.strips = ceil_div(g.out_h, s.strip_rows);
  s.copy_rows = (s.strip_rows - 1) * g.stride_h + reach + 1;
  s.thread_floats = ceil_div(s.copy_rows * s.copy_row + s.lanes, 32) * 32;
  for (int64_t ky = 0; ky < g.kernel_h; ++ky)
    for (int64_t kx = 0; kx < g.kernel_w; ++kx) {
      const int64_t column = kx * g.dilation_w;
      s.offsets.push_back(
          int32_t(ky * g.dilation_h * s.copy_row + column % g.stride_w * s.phase_columns + column / g.stride_w));
    }
  if (!s.epilogue.program || g.out_w == 0) return state;
  s.rows_are_one = s.y.row == g.out_w;
  for (const ConvEpilogue::Further& o : s.epilogue.operands)
    s.rows_are_one = s.rows_are_one && o.strides.row == g.out_w * o.strides.pixel;
  constexpr int64_t kTogetherFloats = 4096;  // still in the first cache
  if (s.rows_are_one && s.strips == 1 && g.group_out() == 1)
    s.planes_together = std::max<int64_t>(1, kTogetherFloats / std::max<int64_t>(1, g.out_h * g.out_w));
  return state;
}

double estimate(const Problem& problem, const Tile&, const Ceilings& ceilings) {
  const auto state = make_state(problem);
  const ConvGeometry& g = state->g;
  const double padded = double(ceil_div(g.out_w, state->lanes) * state->lanes) / double(std::max<int64_t>(1, g.out_w));
  // A row of the copy costs about 8 ns whatever its length: what small planes spend their time on.
  const int64_t phases = state->phase_columns ? state->copy_row / state->phase_columns : 0;
  const double rows = double(g.images * g.in_channels * state->strips * state->copy_rows * phases);
  return conv_estimate_ns(problem, ceilings, g.flops() * padded, 0.25) + 8.0 * rows / problem.threads;
}

int64_t workspace(const Problem& problem, const Tile&) {
  return make_state(problem)->thread_floats * 4 * problem.threads;
}
std::shared_ptr<const void> prepare(const Problem& problem, const Tile&) { return make_state(problem); }

/// The input rows of output rows [oy, oy + rows), zeros around the image.
void copy_strip(const State& s, const float* plane, int64_t oy, int64_t rows, float* copy) {
  const ConvGeometry& g = s.g;
  const int64_t count = (rows - 1) * g.stride_h + (g.kernel_h - 1) * g.dilation_h + 1,
                top = oy * g.stride_h - g.pad_top;
  const int64_t phases = s.copy_row / s.phase_columns;
  for (int64_t r = 0; r < count; ++r) {
    float* to = copy + r * s.copy_row;
    const int64_t iy = top + r;
    if (iy < 0 || iy >= g.in_h) {
      std::memset(to, 0, size_t(s.copy_row) * sizeof(float));
      continue;
    }
    const float* row = plane + iy * s.x.row;
    for (int64_t phase = 0; phase < phases; ++phase, to += s.phase_columns) {
      const int64_t left = phase - g.pad_left;  // column of the image that stands first
      const int64_t first = std::min(s.phase_columns, left >= 0 ? 0 : ceil_div(-left, g.stride_w));
      const int64_t last =
          left >= g.in_w ? first : std::clamp((g.in_w - 1 - left) / g.stride_w + 1, first, s.phase_columns);
      std::memset(to, 0, size_t(first) * sizeof(float));
      if (last > first) pick_every(row + left + first * g.stride_w, g.stride_w, last - first, to + first);
      std::memset(to + last, 0, size_t(s.phase_columns - last) * sizeof(float));
    }
  }
}

/// `finish`: the program of the epilogue, too.
void run_strip(const State& s, const Buffers& buffers, int64_t image, int64_t channel, int64_t strip, float* copy,
               bool finish) {
  const ConvGeometry& g = s.g;
  const ConvEpilogue& e = s.epilogue;
  const int64_t oy = strip * s.strip_rows, rows = std::min(s.strip_rows, g.out_h - oy);
  const int64_t multiplier = g.group_out();
  copy_strip(s, static_cast<const float*>(buffers.inputs[0]) + image * s.x.image + channel * s.x.channel, oy, rows,
             copy);
  for (int64_t m = 0; m < multiplier; ++m) {
    const int64_t out = channel * multiplier + m;
    DepthwiseVectors v;
    v.offset = s.offsets.data(), v.taps = g.taps();
    v.w = static_cast<const float*>(buffers.inputs[1]) + out * g.taps();
    v.bias = e.bias >= 0 ? static_cast<const float*>(buffers.inputs[e.bias])[out] : 0.0f;
    v.low = e.low, v.high = e.high;
    float* y = static_cast<float*>(buffers.outputs[0]) + image * s.y.image + out * s.y.channel + oy * s.y.row;
    const float* residual = nullptr;
    if (e.residual >= 0)
      residual = static_cast<const float*>(buffers.inputs[e.residual]) + image * e.residual_strides.image +
                 out * e.residual_strides.channel + oy * e.residual_strides.row;
    const auto tile = [&](int64_t r, int64_t ox, int64_t count) {
      v.count = count;
      v.x = copy + r * g.stride_h * s.copy_row + ox;
      v.y = y + r * s.y.row + ox;
      v.residual = residual ? residual + r * e.residual_strides.row + ox : nullptr;
      depthwise_vectors(v);
    };
    if (g.out_w <= 2 * s.lanes) {
      // Short rows: a column of vectors.
      v.x_step = g.stride_h * s.copy_row, v.y_step = s.y.row, v.residual_step = e.residual_strides.row;
      for (int64_t ox = 0; ox < g.out_w; ox += s.lanes) {
        v.lanes = v.lanes_of_last = std::min(s.lanes, g.out_w - ox);
        for (int64_t r = 0; r < rows; r += kMostVectors) tile(r, ox, std::min(kMostVectors, rows - r));
      }
    } else {
      v.x_step = v.y_step = v.residual_step = s.lanes;
      v.lanes = s.lanes;
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t ox = 0; ox < g.out_w; ox += kMostVectors * s.lanes) {
          const int64_t left = std::min(kMostVectors * s.lanes, g.out_w - ox), count = ceil_div(left, s.lanes);
          v.lanes_of_last = left - (count - 1) * s.lanes;
          tile(r, ox, count);
        }
    }
    if (!finish || !e.program) continue;
    if (s.rows_are_one) {
      apply_program(e, buffers, y, 1, s.y.channel, image, out, oy, 0, rows * g.out_w, 1);
      continue;
    }
    for (int64_t r = 0; r < rows; ++r)
      apply_program(e, buffers, y + r * s.y.row, 1, s.y.channel, image, out, oy + r, 0, g.out_w, 1);
  }
}

/// Small planes, `planes_together` of them, then the program once. Each call of it costs 85 ns: by rows, 576 planes of
/// 7x7 took 452 us, so 110; 96 of 14x14 143 and 36; 72 of 56x56, a call a strip, 578 and 188.
void run_planes(const State& s, const Buffers& buffers, int64_t begin, int64_t end, float* copy) {
  const int64_t channels = s.g.in_channels;
  for (int64_t i = begin, count = 0; i < end; i += count) {
    const int64_t image = i / channels, channel = i % channels;
    count = std::min({s.planes_together, end - i, channels - channel});
    for (int64_t c = 0; c < count; ++c) run_strip(s, buffers, image, channel + c, 0, copy, false);
    float* y = static_cast<float*>(buffers.outputs[0]) + image * s.y.image + channel * s.y.channel;
    apply_program(s.epilogue, buffers, y, 1, s.y.channel, image, channel, 0, 0, s.g.out_h * s.g.out_w, count);
  }
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const auto body = [&](int64_t begin, int64_t end, int thread) {
    float* copy = static_cast<float*>(buffers.workspace) + thread * s.thread_floats;
    if (s.planes_together > 1) return run_planes(s, buffers, begin, end, copy);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t strip = i % s.strips, channel = i / s.strips % s.g.in_channels,
                    image = i / s.strips / s.g.in_channels;
      run_strip(s, buffers, image, channel, strip, copy, true);
    }
  };
  pool.at_most(call.problem.threads).run(s.g.images * s.g.in_channels * s.strips, 1, std::ref(body));
}

}  // namespace

const Kernel kConvDepthwiseNchw = {
    .name = "cpu.conv_depthwise_nchw",
    .op = "Conv",
    .supports = supports,
    .estimate = estimate,
    .workspace = workspace,
    .prepare = prepare,
    .run = run,
    .in_place = residual_in_place<kOrder>,
};

}  // namespace ridgeline::cpu
