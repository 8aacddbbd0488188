// cpu.conv_nchw: convolution of plain NCHW images, any group count.
#include <algorithm>
#include <cstring>
#include <memory>

#include "kernels/cpu/conv/direct_micro.h"
#include "kernels/cpu/conv/epilogue.h"
#include "kernels/cpu/conv/estimate.h"
#include "kernels/cpu/conv/kernels.h"
#include "kernels/cpu/conv/planar.h"

namespace ridgeline::cpu {
namespace {

struct State {
  PlanarPlan plan;
  ConvEpilogue epilogue;
  int64_t weight_row = 0;
};

PlanarShape shape_of(const Problem& problem, const ConvEpilogue& epilogue) {
  const ConvGeometry g = conv_geometry(problem);
  PlanarShape s;
  s.groups = g.groups, s.images = g.images;
  s.height = g.in_h, s.width = g.in_w, s.channels = g.group_in();
  s.x = *planar_strides(problem.input(0).layout);
  s.kernel_h = g.kernel_h, s.kernel_w = g.kernel_w, s.stride_h = g.stride_h, s.stride_w = g.stride_w;
  s.dilation_h = g.dilation_h, s.dilation_w = g.dilation_w, s.pad_top = g.pad_top, s.pad_left = g.pad_left;
  s.out_h = g.out_h, s.out_w = g.out_w, s.out_channels = g.group_out();
  s.y = *planar_strides(problem.output().layout);
  s.has_residual = epilogue.residual >= 0;
  s.residual = epilogue.residual_strides;
  return s;
}

int64_t depth_of(const Problem& problem) { return conv_geometry(problem).taps() * conv_geometry(problem).group_in(); }

std::shared_ptr<const State> make_state(const Problem& problem) {
  auto state = std::make_shared<State>();
  state->epilogue = conv_epilogue(problem, ImageOrder::kPlanar);
  state->plan = planar_plan(shape_of(problem, state->epilogue), problem.threads);
  // Weights that are no constant are used as they come.
  state->weight_row = problem.input(1).is_constant ? state->plan.row_floats : state->plan.shape.depth();
  return state;
}

Support supports(const Problem& problem) {
  if (Support s = supports_conv(problem); !s.ok) return s;
  if (!planar_strides(problem.input(0).layout)) return no("the planes of x are not contiguous");
  if (!planar_strides(problem.output().layout)) return no("the planes of y are not contiguous");
  return supports_epilogue(problem);
}

double estimate(const Problem& problem, const Tile&, const Ceilings& ceilings) {
  const ConvGeometry g = conv_geometry(problem);
  const int64_t lanes = direct_kernels().lanes, pixels = std::max<int64_t>(1, g.out_h * g.out_w);
  const double depth = double(g.taps() * g.group_in()), rows = double(g.group_out());
  const double padded = double((pixels + lanes - 1) / lanes * lanes) / double(pixels);
  const double chains = std::min(1.0, std::min(14.0, rows) * (pixels > lanes ? 2 : 1) / 8.0);
  // Gathering a panel costs about as much as eight rows of products with it.
  const double efficiency = 0.80 * chains * depth / (depth + 12) * rows / (rows + 8);
  return conv_estimate_ns(problem, ceilings, g.flops() * padded, std::max(0.01, efficiency));
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

struct Context {
  const State* state;
  const Buffers* buffers;
};

void finished(const void* context, float* y, int64_t image, int64_t oy, int64_t ox, int64_t pixels, int64_t channel,
              int64_t channels) {
  const Context& c = *static_cast<const Context*>(context);
  apply_program(c.state->epilogue, *c.buffers, y, 1, c.state->plan.shape.y.channel, image, channel, oy, ox, pixels,
                channels);
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& state = call.state_as<State>();
  const ConvEpilogue& e = state.epilogue;
  PlanarBuffers b;
  b.x = static_cast<const float*>(buffers.inputs[0]);
  b.weights = static_cast<const float*>(buffers.inputs[1]);
  b.weight_row = state.weight_row;
  b.workspace = buffers.workspace;
  if (e.bias >= 0) b.bias = static_cast<const float*>(buffers.inputs[e.bias]);
  if (e.residual >= 0) b.residual = static_cast<const float*>(buffers.inputs[e.residual]);
  b.y = static_cast<float*>(buffers.outputs[0]);
  b.low = e.low, b.high = e.high;
  const Context context{&state, &buffers};
  if (e.program) b.finished = finished, b.context = &context;
  planar_conv(state.plan, b, pool);
}

bool in_place(const Problem& problem, int input) {
  if (input < problem.op_inputs) return false;
  const ConvEpilogue e = conv_epilogue(problem, ImageOrder::kPlanar);
  return e.residual == input && e.residual_strides == *planar_strides(problem.output().layout);
}

}  // namespace

const Kernel kConvNchw = {
    .name = "cpu.conv_nchw",
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
