// cpu.conv_nhwc: convolution of any group count, channels last, by the direct register kernel.
#include <algorithm>
#include <memory>

#include "core/integer.h"
#include "kernels/cpu/conv/direct.h"
#include "kernels/cpu/conv/direct_micro.h"
#include "kernels/cpu/conv/epilogue.h"
#include "kernels/cpu/conv/estimate.h"
#include "kernels/cpu/conv/kernels.h"

namespace ridgeline::cpu {
namespace {

constexpr ImageOrder kOrder = ImageOrder::kChannelsLast;

struct State {
  DirectPlan plan;
  ConvEpilogue epilogue;
  int64_t packed_bytes = 0;  // of weights that each run packs: they are no constant
};

/// [out_channel][channel][ky][kx], as ONNX has it.
void pack_weights(const ConvShape& s, const float* source, float* packed) {
  DirectWeights w;
  w.data = source;
  w.tap_x = 1, w.tap_y = s.kernel_w, w.channel = s.kernel_h * s.kernel_w;
  w.out_channel = w.channel * s.channels, w.group = w.out_channel * s.out_channels;
  pack_direct_weights(s, w, packed);
}

std::shared_ptr<const State> make_state(const Problem& problem) {
  auto state = std::make_shared<State>();
  state->epilogue = conv_epilogue(problem, kOrder);
  state->plan = direct_plan(conv_shape(problem, state->epilogue, kOrder), problem.threads);
  const ConvShape& s = state->plan.shape;
  state->packed_bytes =
      problem.input(1).is_constant ? 0 : round_up(direct_weight_floats(s.groups, s.out_channels, s.depth()) * 4, 64);
  return state;
}

double estimate(const Problem& problem, const Tile&, const Ceilings& ceilings) {
  const ConvGeometry g = conv_geometry(problem);
  const int64_t lanes = direct_kernels().lanes;
  const double depth = double(g.taps() * g.group_in());
  const double padded = double(round_up(g.group_out(), lanes)) / double(std::max<int64_t>(1, g.group_out()));
  // Few pixels in a row leave multiply-add chains idle; a short sum pays for its start and end.
  const bool flat = g.pointwise() && g.stride_h == 1 && g.stride_w == 1;
  const double pixels = std::min(14.0, double(flat ? g.images * g.out_h * g.out_w : g.out_w));
  const double chains = std::min(1.0, pixels * (g.group_out() > lanes ? 2 : 1) / 8.0);
  const double efficiency = 0.85 * chains * depth / (depth + 12);
  return conv_estimate_ns(problem, ceilings, g.flops() * padded, std::max(0.01, efficiency)) +
         cold_weights_ns(problem, ceilings);
}

int64_t workspace(const Problem& problem, const Tile&) {
  const auto state = make_state(problem);
  return state->plan.workspace_bytes() + state->packed_bytes;
}

Packing packing(const Problem& problem, const Tile&, int input) {
  if (input != 1) return {};
  const ConvShape s = conv_shape(problem, conv_epilogue(problem, kOrder), kOrder);
  return {fmt::format("direct panels {}x{}x{} groups {} out {} lanes {}", s.kernel_h, s.kernel_w, s.channels, s.groups,
                      s.out_channels, direct_kernels().lanes),
          direct_weight_floats(s.groups, s.out_channels, s.depth()) * 4};
}

void pack(const Problem& problem, const Tile&, int input, const Tensor& source, void* packed) {
  if (input != 1) return;
  pack_weights(conv_shape(problem, conv_epilogue(problem, kOrder), kOrder), source.as<float>(),
               static_cast<float*>(packed));
}

std::shared_ptr<const void> prepare(const Problem& problem, const Tile&) { return make_state(problem); }

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& state = call.state_as<State>();
  const RestOfEpilogue rest{&state.epilogue, &buffers, state.plan.shape.y.pixel, 1};
  ConvBuffers b = conv_buffers(rest);
  b.weights = static_cast<const float*>(buffers.inputs[1]);
  char* workspace = static_cast<char*>(buffers.workspace);
  if (state.packed_bytes > 0) {
    float* packed = reinterpret_cast<float*>(workspace);
    pack_weights(state.plan.shape, b.weights, packed);
    b.weights = packed;
    workspace += state.packed_bytes;
  }
  b.workspace = workspace;
  direct_conv(state.plan, b, pool);
}

}  // namespace

const Kernel kConvNhwc = {
    .name = "cpu.conv_nhwc",
    .op = "Conv",
    .supports = supports_images<kOrder>,
    .estimate = estimate,
    .workspace = workspace,
    .packing = packing,
    .pack = pack,
    .prepare = prepare,
    .run = run,
    .in_place = residual_in_place<kOrder>,
};

}  // namespace ridgeline::cpu
