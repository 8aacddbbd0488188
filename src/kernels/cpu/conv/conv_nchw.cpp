// cpu.conv_nchw: convolution of plain NCHW images, any group count.
#include <algorithm>
#include <cstring>
#include <memory>

#include "core/integer.h"
#include "kernels/cpu/conv/direct_micro.h"
#include "kernels/cpu/conv/epilogue.h"
#include "kernels/cpu/conv/estimate.h"
#include "kernels/cpu/conv/kernels.h"
#include "kernels/cpu/conv/planar.h"

namespace ridgeline::cpu {
namespace {

constexpr ImageOrder kOrder = ImageOrder::kPlanar;

struct State {
  PlanarPlan plan;
  ConvEpilogue epilogue;
  int64_t weight_row = 0;
};

int64_t depth_of(const Problem& problem) { return conv_geometry(problem).taps() * conv_geometry(problem).group_in(); }

std::shared_ptr<const State> make_state(const Problem& problem) {
  auto state = std::make_shared<State>();
  state->epilogue = conv_epilogue(problem, kOrder);
  state->plan = planar_plan(conv_shape(problem, state->epilogue, kOrder), problem.threads);
  // Weights that are no constant are used as they come.
  state->weight_row = problem.input(1).is_constant ? state->plan.row_floats : state->plan.shape.depth();
  return state;
}

double estimate(const Problem& problem, const Tile&, const Ceilings& ceilings) {
  const ConvGeometry g = conv_geometry(problem);
  const int64_t lanes = direct_kernels().lanes, pixels = std::max<int64_t>(1, g.out_h * g.out_w);
  const double depth = double(g.taps() * g.group_in()), rows = double(g.group_out());
  const double padded = double(round_up(pixels, lanes)) / double(pixels);
  const double chains = std::min(1.0, std::min(14.0, rows) * (pixels > lanes ? 2 : 1) / 8.0);
  // Gathering a panel costs about as much as eight rows of products with it.
  const double efficiency = 0.80 * chains * depth / (depth + 12) * rows / (rows + 8);
  return conv_estimate_ns(problem, ceilings, g.flops() * padded, std::max(0.002, efficiency)) +  // depthwise: 0.005
         cold_weights_ns(problem, ceilings);
}

int64_t workspace(const Problem& problem, const Tile&) { return make_state(problem)->plan.workspace_bytes(); }

Packing packing(const Problem& problem, const Tile&, int input) {
  const int64_t depth = depth_of(problem), row = planar_row_floats(depth);
  if (input != 1 || row == depth) return {};
  return {fmt::format("rows {} apart {}", depth, row), problem.input(1).shape()[0] * row * 4};
}

void pack(const Problem& problem, const Tile&, int input, const Tensor& source, void* packed) {
  if (input != 1) return;
  const int64_t depth = depth_of(problem), row = planar_row_floats(depth), rows = problem.input(1).shape()[0];
  for (int64_t r = 0; r < rows; ++r) {
    float* to = static_cast<float*>(packed) + r * row;
    std::memcpy(to, source.as<float>() + r * depth, size_t(depth) * sizeof(float));
    std::fill(to + depth, to + row, 0.0f);
  }
}

std::shared_ptr<const void> prepare(const Problem& problem, const Tile&) { return make_state(problem); }

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& state = call.state_as<State>();
  const RestOfEpilogue rest{&state.epilogue, &buffers, 1, state.plan.shape.y.channel};
  ConvBuffers b = conv_buffers(rest);
  b.weights = static_cast<const float*>(buffers.inputs[1]);
  b.weight_row = state.weight_row;
  b.workspace = buffers.workspace;
  planar_conv(state.plan, b, pool);
}

}  // namespace

const Kernel kConvNchw = {
    .name = "cpu.conv_nchw",
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
