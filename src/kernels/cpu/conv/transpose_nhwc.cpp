// cpu.conv_transpose_nhwc: transposed convolution, channels last, as one direct convolution for each phase of the
// stride.
#include <algorithm>
#include <memory>
#include <vector>

#include "core/integer.h"
#include "kernels/cpu/conv/direct.h"
#include "kernels/cpu/conv/direct_micro.h"
#include "kernels/cpu/conv/epilogue.h"
#include "kernels/cpu/conv/estimate.h"
#include "kernels/cpu/conv/kernels.h"
#include "kernels/cpu/conv/phases.h"

namespace ridgeline::cpu {
namespace {

constexpr ImageOrder kOrder = ImageOrder::kChannelsLast;

struct Part {
  DirectPlan plan;
  AxisPhase h, w;
  int64_t weights = 0;  // where its packed weights begin, in floats
};

struct State {
  /// Along a row, a kernel as wide as its stride makes neighbouring outputs of one input pixel: they are the channels
  /// of one convolution (2x2 with stride 2 and 24 channels: two convolutions of 48 channels instead of four of 24).
  bool merged = false;
  int64_t merged_bias = 0;  // floats of the bias, repeated
  ConvGeometry g;
  ImageStrides y;
  ConvEpilogue epilogue;
  std::vector<Part> parts;
  int64_t weight_floats = 0, packed_bytes = 0, workspace_bytes = 0;
  int64_t row_floats = 0;  // of the taps of one part side by side, while merged weights are packed
};

std::shared_ptr<const State> make_state(const Problem& problem) {
  auto state = std::make_shared<State>();
  State& s = *state;
  s.g = conv_geometry(problem);
  const ConvGeometry& g = s.g;
  s.y = *image_strides(problem.output().layout, kOrder);
  s.epilogue = conv_epilogue(problem, kOrder);
  s.merged = g.stride_w > 1 && g.kernel_w == g.stride_w && g.pad_left == 0 && g.dilation_w == 1 && g.groups == 1 &&
             g.out_w == g.in_w * g.stride_w && s.y.pixel == g.out_channels && s.epilogue.operands.empty() &&
             (s.epilogue.residual < 0 || s.epilogue.residual_strides.pixel == g.out_channels);
  std::vector<AxisPhase> columns = axis_phases(g.out_w, g.kernel_w, g.stride_w, g.dilation_w, g.pad_left);
  if (s.merged) {
    columns.resize(1);
    if (s.epilogue.bias >= 0) s.merged_bias = round_up(g.kernel_w * g.out_channels, 16);
  }
  for (const AxisPhase& h : axis_phases(g.out_h, g.kernel_h, g.stride_h, g.dilation_h, g.pad_top))
    for (const AxisPhase& w : columns) {
      ConvShape p;
      p.groups = g.groups, p.images = g.images, p.height = g.in_h, p.width = g.in_w, p.channels = g.group_in();
      p.x = *image_strides(problem.input(0).layout, kOrder);
      p.kernel_h = h.taps, p.kernel_w = w.taps, p.dilation_h = h.dilation, p.dilation_w = w.dilation;
      p.pad_top = h.pad, p.pad_left = w.pad;
      p.out_h = h.count, p.out_w = w.count, p.out_channels = g.group_out() * (s.merged ? g.kernel_w : 1);
      const auto every = [&](const ImageStrides& t) {
        return ImageStrides{t.image, t.channel, t.row * g.stride_h, t.pixel * g.stride_w};
      };
      p.y = every(s.y);
      p.has_residual = s.epilogue.residual >= 0;
      p.residual = every(s.epilogue.residual_strides);
      Part part{direct_plan(p, problem.threads), h, w, s.weight_floats};
      s.weight_floats += round_up(direct_weight_floats(p.groups, p.out_channels, p.depth()), 16);
      s.workspace_bytes = std::max(s.workspace_bytes, part.plan.workspace_bytes());
      if (s.merged) s.row_floats = std::max(s.row_floats, p.kernel_h * p.channels * p.out_channels);
      s.parts.push_back(std::move(part));
    }
  s.packed_bytes = problem.input(1).is_constant ? 0 : s.weight_floats * 4;
  return state;
}

/// Columns of one row of taps as output channels: [kx][out_channel]. `rows`: row_floats to work in.
void pack_merged(const State& s, const Part& part, const float* source, float* packed, float* rows) {
  const ConvGeometry& g = s.g;
  const ConvShape& p = part.plan.shape;
  for (int64_t ky = 0; ky < p.kernel_h; ++ky)
    for (int64_t c = 0; c < p.channels; ++c)
      for (int64_t o = 0; o < p.out_channels; ++o)
        rows[(ky * p.channels + c) * p.out_channels + o] =
            source[(c * g.out_channels + o % g.out_channels) * g.taps() +
                   (part.h.kernel_first + ky * part.h.kernel_step) * g.kernel_w + o / g.out_channels];
  DirectWeights w;
  w.data = rows;
  w.tap_y = p.channels * p.out_channels, w.channel = p.out_channels, w.out_channel = 1;
  pack_direct_weights(p, w, packed);
}

/// Source: [channel][out_channel of the group][ky][kx].
void pack_weights(const State& s, const float* source, float* packed, float* rows) {
  const ConvGeometry& g = s.g;
  for (const Part& part : s.parts) {
    const ConvShape& p = part.plan.shape;
    if (part.h.empty || part.w.empty) {
      std::fill_n(packed + part.weights, direct_weight_floats(p.groups, p.out_channels, p.depth()), 0.0f);
      continue;
    }
    if (s.merged) {
      pack_merged(s, part, source, packed + part.weights, rows);
      continue;
    }
    DirectWeights w;
    w.data = source + part.h.kernel_first * g.kernel_w + part.w.kernel_first;
    w.tap_y = part.h.kernel_step * g.kernel_w, w.tap_x = part.w.kernel_step;
    w.out_channel = g.taps(), w.channel = g.taps() * g.group_out(), w.group = w.channel * g.group_in();
    pack_direct_weights(p, w, packed + part.weights);
  }
}

double estimate(const Problem& problem, const Tile&, const Ceilings& ceilings) {
  const auto state = make_state(problem);
  const ConvGeometry& g = state->g;
  const int64_t lanes = direct_kernels().lanes;
  const double padded = double(round_up(g.group_out(), lanes)) / double(std::max<int64_t>(1, g.group_out()));
  const double depth = double(g.taps() * g.group_in()) / double(g.stride_h * g.stride_w);
  const int64_t again = std::max<int64_t>(0, int64_t(state->parts.size()) - 1) * problem.input(0).bytes();  // each part
  return conv_estimate_ns(problem, ceilings, g.flops() * padded, 0.8 * depth / (depth + 12), again);
}

int64_t workspace(const Problem& problem, const Tile&) {
  const auto state = make_state(problem);
  const int64_t run_bytes = state->merged_bias * 4 + state->workspace_bytes;
  return state->packed_bytes + std::max(run_bytes, state->packed_bytes > 0 ? state->row_floats * 4 : 0);
}

Packing packing(const Problem& problem, const Tile&, int input) {
  if (input != 1) return {};
  const auto state = make_state(problem);
  const ConvGeometry& g = state->g;
  std::string key = fmt::format("direct phases{} groups {} {}x{} of {}x{} lanes {}:", state->merged ? " merged" : "",
                                g.groups, g.group_in(), g.group_out(), g.kernel_h, g.kernel_w, direct_kernels().lanes);
  for (const Part& p : state->parts)
    key += fmt::format(" {}+{}*{},{}+{}*{}{}", p.h.kernel_first, p.h.taps, p.h.kernel_step, p.w.kernel_first, p.w.taps,
                       p.w.kernel_step, p.h.empty || p.w.empty ? "!" : "");
  return {key, state->weight_floats * 4};
}

void pack(const Problem& problem, const Tile&, int input, const Tensor& source, void* packed) {
  if (input != 1) return;
  const auto state = make_state(problem);
  std::vector<float> rows(size_t(state->row_floats));
  pack_weights(*state, source.as<float>(), static_cast<float*>(packed), rows.data());
}

std::shared_ptr<const void> prepare(const Problem& problem, const Tile&) { return make_state(problem); }

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const ConvEpilogue& e = s.epilogue;
  const float* weights = static_cast<const float*>(buffers.inputs[1]);
  char* workspace = static_cast<char*>(buffers.workspace);
  if (s.packed_bytes > 0) {
    // The rows lie where the parts work afterwards.
    float* packed = reinterpret_cast<float*>(workspace);
    pack_weights(s, weights, packed, packed + s.weight_floats);
    weights = packed;
    workspace += s.packed_bytes;
  }
  const float* bias = e.bias >= 0 ? static_cast<const float*>(buffers.inputs[e.bias]) : nullptr;
  if (s.merged_bias > 0) {
    float* repeated = reinterpret_cast<float*>(workspace);
    for (int64_t i = 0; i < s.g.kernel_w * s.g.out_channels; ++i) repeated[i] = bias[i % s.g.out_channels];
    bias = repeated;
    workspace += s.merged_bias * 4;
  }
  for (const Part& part : s.parts) {
    const auto from = [&](const ImageStrides& t) { return part.h.first * t.row + part.w.first * t.pixel; };
    const RestOfEpilogue rest{&e,           &buffers,    part.plan.shape.y.pixel, 1, part.h.first, s.g.stride_h,
                              part.w.first, s.g.stride_w};
    ConvBuffers b = conv_buffers(rest);
    b.weights = weights + part.weights;
    b.workspace = workspace;
    b.bias = bias;
    if (b.residual) b.residual += from(e.residual_strides);
    b.y += from(s.y);
    direct_conv(part.plan, b, pool);
  }
}

}  // namespace

const Kernel kConvTransposeNhwc = {
    .name = "cpu.conv_transpose_nhwc",
    .op = "ConvTranspose",
    .supports = supports_images<kOrder>,
    .estimate = estimate,
    .workspace = workspace,
    .packing = packing,
    .pack = pack,
    .prepare = prepare,
    .run = run,
};

}  // namespace ridgeline::cpu
