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
        const auto whole =
            order == ImageOrder::kChannelsLast ? channels_last_strides(operand.layout) : planar_strides(operand.layout);
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

}  // namespace ridgeline::cpu
