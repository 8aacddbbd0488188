#include "kernels/cpu/conv/epilogue.h"

namespace ridgeline::cpu {
namespace {

/// Reads the program as v + bias + residual, clamped: each instruction takes the last one's result.
bool read_in_registers(const Problem& problem, ImageOrder order, bool with_residual, ConvEpilogue& out) {
  const Program& program = *problem.program;
  if (program.outputs.size() != 1) return false;
  const Extents& shape = problem.output().shape();
  const auto constant = [&](int operand) -> const ProgramConstant* {
    const int i = operand - program.first_constant();
    return i >= 0 && i < int(program.constants.size()) ? &program.constants[size_t(i)] : nullptr;
  };
  int value = 0;
  bool clamped = false;
  for (size_t i = 0; i < program.code.size(); ++i) {
    const Instruction& c = program.code[i];
    if (c.dtype != DType::kF32) return false;
    if (c.op == ScalarOp::kAdd && !clamped) {
      if ((c.a == value) == (c.b == value)) return false;
      const int other = c.a == value ? c.b : c.a;
      if (other <= 0 || other >= int(program.inputs.size())) return false;
      const int input = problem.op_inputs + other - 1;
      const Operand& operand = problem.input(input);
      if (operand.dtype != DType::kF32) return false;
      const auto s = broadcast_strides(operand.layout, shape);
      if (!s) return false;
      const bool per_channel = !s->image && !s->row && !s->pixel && (s->channel == 1 || shape[1] == 1);
      if (per_channel && out.bias < 0 && out.residual < 0) {
        out.bias = input;
      } else if (with_residual && out.residual < 0 && operand.shape() == shape) {
        const auto whole = image_strides(operand.layout, order);
        if (!whole) return false;
        out.residual = input, out.residual_strides = *whole;
      } else {
        return false;
      }
    } else if (c.op == ScalarOp::kRelu && c.a == value && !clamped) {
      out.low = 0, clamped = true;
    } else if (c.op == ScalarOp::kClamp && c.a == value && !clamped && constant(c.b) && constant(c.c)) {
      out.low = float(constant(c.b)->f), out.high = float(constant(c.c)->f), clamped = true;
      if (!(out.low <= out.high)) return false;
    } else {
      return false;
    }
    value = program.first_result() + int(i);
  }
  return program.outputs[0] == value;
}

}  // namespace

Support supports_epilogue(const Problem& problem) {
  if (!problem.has_epilogue()) return yes();
  if (std::string why = PreparedProgram::reject(*problem.program); !why.empty()) return no("{}", why);
  if (problem.program->outputs.size() != 1) return no("the epilogue has {} outputs", problem.program->outputs.size());
  if (problem.epilogue_operands() > kMostEpilogueOperands) return no("too many operands in the epilogue");
  for (int i = problem.op_inputs; i < int(problem.inputs.size()); ++i)
    if (!broadcast_strides(problem.input(i).layout, problem.output().shape()))
      return no("an operand of the epilogue does not broadcast to the output");
  return yes();
}

ConvEpilogue conv_epilogue(const Problem& problem, ImageOrder order, bool with_residual) {
  ConvEpilogue out;
  if (problem.has(2)) out.bias = 2;
  if (!problem.has_epilogue()) return out;
  ConvEpilogue quick = out;
  if (read_in_registers(problem, order, with_residual, quick)) return quick;
  out.program = std::make_shared<const PreparedProgram>(*problem.program);
  for (int i = problem.op_inputs; i < int(problem.inputs.size()); ++i)
    out.operands.push_back({i, bytes_of(problem.input(i).dtype, 1),
                            *broadcast_strides(problem.input(i).layout, problem.output().shape())});
  return out;
}

void apply_program(const ConvEpilogue& epilogue, const Buffers& buffers, float* y, int64_t y_pixel, int64_t y_channel,
                   int64_t image, int64_t channel, int64_t oy, int64_t ox, int64_t pixels, int64_t channels,
                   int64_t ox_step) {
  // Rows of the tile are pixels if channels are contiguous, else channels.
  TileInput inputs[kMostEpilogueOperands];
  const bool channels_last = y_channel == 1 && !(y_pixel == 1 && channels == 1);
  for (size_t i = 0; i < epilogue.operands.size(); ++i) {
    const ConvEpilogue::Further& o = epilogue.operands[i];
    const int64_t offset =
        image * o.strides.image + channel * o.strides.channel + oy * o.strides.row + ox * o.strides.pixel;
    inputs[i].data = static_cast<const char*>(buffers.inputs[o.input]) + offset * o.element_bytes;
    inputs[i].row_stride = channels_last ? o.strides.pixel * ox_step : o.strides.channel;
    inputs[i].col_stride = channels_last ? o.strides.channel : o.strides.pixel * ox_step;
  }
  if (channels_last)
    apply_epilogue(*epilogue.program, y, y_pixel, pixels, channels, inputs);
  else
    apply_epilogue(*epilogue.program, y, y_channel, channels, pixels, inputs);
}

Support supports_images(const Problem& problem, ImageOrder order) {
  if (Support s = supports_conv(problem); !s.ok) return s;
  const bool planar = order == ImageOrder::kPlanar;
  for (const auto& [name, operand] : {std::pair{"x", &problem.input(0)}, {"y", &problem.output()}}) {
    if (image_strides(operand->layout, order)) continue;
    return planar ? no("the planes of {} are not contiguous", name) : no("{} is not channels-last", name);
  }
  return supports_epilogue(problem);
}

bool residual_in_place(const Problem& problem, int input, ImageOrder order) {
  if (input < problem.op_inputs) return false;
  const ConvEpilogue e = conv_epilogue(problem, order);
  return e.residual == input && e.residual_strides == *image_strides(problem.output().layout, order);
}

ConvShape conv_shape(const Problem& problem, const ConvEpilogue& epilogue, ImageOrder order) {
  const ConvGeometry g = conv_geometry(problem);
  ConvShape s;
  s.groups = g.groups, s.images = g.images;
  s.height = g.in_h, s.width = g.in_w, s.channels = g.group_in();
  s.x = *image_strides(problem.input(0).layout, order);
  s.kernel_h = g.kernel_h, s.kernel_w = g.kernel_w, s.stride_h = g.stride_h, s.stride_w = g.stride_w;
  s.dilation_h = g.dilation_h, s.dilation_w = g.dilation_w, s.pad_top = g.pad_top, s.pad_left = g.pad_left;
  s.out_h = g.out_h, s.out_w = g.out_w, s.out_channels = g.group_out();
  s.y = *image_strides(problem.output().layout, order);
  s.has_residual = epilogue.residual >= 0;
  s.residual = epilogue.residual_strides;
  return s;
}

namespace {

void finish_run(const void* context, float* y, int64_t image, int64_t oy, int64_t ox, int64_t pixels, int64_t channel,
                int64_t channels) {
  const RestOfEpilogue& r = *static_cast<const RestOfEpilogue*>(context);
  apply_program(*r.epilogue, *r.buffers, y, r.y_pixel, r.y_channel, image, channel, r.first_row + oy * r.row_step,
                r.first_column + ox * r.column_step, pixels, channels, r.column_step);
}

}  // namespace

ConvBuffers conv_buffers(const RestOfEpilogue& rest) {
  const ConvEpilogue& e = *rest.epilogue;
  const Buffers& buffers = *rest.buffers;
  ConvBuffers b;
  b.x = static_cast<const float*>(buffers.inputs[0]);
  if (e.bias >= 0) b.bias = static_cast<const float*>(buffers.inputs[e.bias]);
  if (e.residual >= 0) b.residual = static_cast<const float*>(buffers.inputs[e.residual]);
  b.y = static_cast<float*>(buffers.outputs[0]);
  b.low = e.low, b.high = e.high;
  if (e.program) b.finished = finish_run, b.context = &rest;
  return b;
}

}  // namespace ridgeline::cpu
