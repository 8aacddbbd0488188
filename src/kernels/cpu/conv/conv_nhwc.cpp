// cpu.conv_nhwc: convolution of any group count, channels last, by the direct register kernel.
#include <algorithm>
#include <memory>

#include "kernels/cpu/conv/direct.h"
#include "kernels/cpu/conv/direct_micro.h"
#include "kernels/cpu/conv/epilogue.h"
#include "kernels/cpu/conv/estimate.h"
#include "kernels/cpu/conv/kernels.h"

namespace ridgeline::cpu {
namespace {

struct State {
  DirectPlan plan;
  ConvEpilogue epilogue;
  int64_t packed_bytes = 0;  // of weights that each run packs: they are no constant
};

DirectShape shape_of(const Problem& problem, const ConvEpilogue& epilogue) {
  const ConvGeometry g = conv_geometry(problem);
  DirectShape s;
  s.groups = g.groups, s.images = g.images;
  s.height = g.in_h, s.width = g.in_w, s.channels = g.group_in();
  s.x = *channels_last_strides(problem.input(0).layout);
  s.kernel_h = g.kernel_h, s.kernel_w = g.kernel_w, s.stride_h = g.stride_h, s.stride_w = g.stride_w;
  s.dilation_h = g.dilation_h, s.dilation_w = g.dilation_w, s.pad_top = g.pad_top, s.pad_left = g.pad_left;
  s.out_h = g.out_h, s.out_w = g.out_w, s.out_channels = g.group_out();
  s.y = *channels_last_strides(problem.output().layout);
  s.has_residual = epilogue.residual >= 0;
  s.residual = epilogue.residual_strides;
  return s;
}

/// [out_channel][channel][ky][kx], as ONNX has it.
void pack_weights(const DirectShape& s, const float* source, float* packed) {
  DirectWeights w;
  w.data = source;
  w.tap_x = 1, w.tap_y = s.kernel_w, w.channel = s.kernel_h * s.kernel_w;
  w.out_channel = w.channel * s.channels, w.group = w.out_channel * s.out_channels;
  pack_direct_weights(s, w, packed);
}

std::shared_ptr<const State> make_state(const Problem& problem) {
  auto state = std::make_shared<State>();
  state->epilogue = conv_epilogue(problem, ImageOrder::kChannelsLast);
  state->plan = direct_plan(shape_of(problem, state->epilogue), problem.threads);
  const DirectShape& s = state->plan.shape;
  state->packed_bytes =
      problem.input(1).is_constant ? 0 : (direct_weight_floats(s.groups, s.out_channels, s.depth()) * 4 + 63) / 64 * 64;
  return state;
}

Support supports(const Problem& problem) {
  if (Support s = supports_conv(problem); !s.ok) return s;
  if (!channels_last_strides(problem.input(0).layout)) return no("x is not channels-last");
  if (!channels_last_strides(problem.output().layout)) return no("y is not channels-last");
  return supports_epilogue(problem);
}

double estimate(const Problem& problem, const Tile&, const Ceilings& ceilings) {
  const ConvGeometry g = conv_geometry(problem);
  const int64_t lanes = direct_kernels().lanes;
  const double depth = double(g.taps() * g.group_in());
  const double padded =
      double((g.group_out() + lanes - 1) / lanes * lanes) / double(std::max<int64_t>(1, g.group_out()));
  // Few pixels in a row leave multiply-add chains idle; a short sum pays for its start and end.
  const bool flat = g.pointwise() && g.stride_h == 1 && g.stride_w == 1;
  const double pixels = std::min(14.0, double(flat ? g.images * g.out_h * g.out_w : g.out_w));
  const double chains = std::min(1.0, pixels * (g.group_out() > lanes ? 2 : 1) / 8.0);
  const double efficiency = 0.88 * chains * depth / (depth + 12);
  return conv_estimate_ns(problem, ceilings, g.flops() * padded, std::max(0.01, efficiency));
}

int64_t workspace(const Problem& problem, const Tile&) {
  const auto state = make_state(problem);
  return state->plan.workspace_bytes() + state->packed_bytes;
}

Packing packing(const Problem& problem, const Tile&, int input) {
  if (input != 1) return {};
  const DirectShape s = shape_of(problem, conv_epilogue(problem, ImageOrder::kChannelsLast));
  return {fmt::format("direct panels {}x{}x{} groups {} out {} lanes {}", s.kernel_h, s.kernel_w, s.channels, s.groups,
                      s.out_channels, direct_kernels().lanes),
          direct_weight_floats(s.groups, s.out_channels, s.depth()) * 4};
}

void pack(const Problem& problem, const Tile&, int input, const Tensor& source, void* packed) {
  if (input != 1) return;
  pack_weights(shape_of(problem, conv_epilogue(problem, ImageOrder::kChannelsLast)), source.as<float>(),
               static_cast<float*>(packed));
}

std::shared_ptr<const void> prepare(const Problem& problem, const Tile&) { return make_state(problem); }

struct Context {
  const State* state;
  const Buffers* buffers;
};

void finished(const void* context, float* y, int64_t image, int64_t oy, int64_t ox, int64_t pixels, int64_t channel,
              int64_t channels) {
  const Context& c = *static_cast<const Context*>(context);
  apply_program(c.state->epilogue, *c.buffers, y, c.state->plan.shape.y.pixel, 1, image, channel, oy, ox, pixels,
                channels);
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& state = call.state_as<State>();
  const ConvEpilogue& e = state.epilogue;
  DirectBuffers b;
  b.x = static_cast<const float*>(buffers.inputs[0]);
  b.weights = static_cast<const float*>(buffers.inputs[1]);
  char* workspace = static_cast<char*>(buffers.workspace);
  if (state.packed_bytes > 0) {
    float* packed = reinterpret_cast<float*>(workspace);
    pack_weights(state.plan.shape, b.weights, packed);
    b.weights = packed;
    workspace += state.packed_bytes;
  }
  b.workspace = workspace;
  if (e.bias >= 0) b.bias = static_cast<const float*>(buffers.inputs[e.bias]);
  if (e.residual >= 0) b.residual = static_cast<const float*>(buffers.inputs[e.residual]);
  b.y = static_cast<float*>(buffers.outputs[0]);
  b.low = e.low, b.high = e.high;
  const Context context{&state, &buffers};
  if (e.program) b.finished = finished, b.context = &context;
  direct_conv(state.plan, b, pool);
}

bool in_place(const Problem& problem, int input) {
  if (input < problem.op_inputs) return false;
  const ConvEpilogue e = conv_epilogue(problem, ImageOrder::kChannelsLast);
  return e.residual == input && e.residual_strides == *channels_last_strides(problem.output().layout);
}

}  // namespace

const Kernel kConvNhwc = {
    .name = "cpu.conv_nhwc",
    .op = "Conv",
    .supports = supports,
    .estimate = estimate,
    .workspace = workspace,
    .packing = packing,
    .pack = pack,
    .prepare = prepare,
    .run = run,
    .in_place = in_place,
};

}  // namespace ridgeline::cpu
