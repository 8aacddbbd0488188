#include "kernels/cpu/matmul/epilogue.h"

#include <optional>
#include <utility>

namespace ridgeline::cpu {

RegisterEpilogue read_epilogue(const Program& program, const std::vector<EpilogueOperand>& operands) {
  RegisterEpilogue out;
  if (program.outputs.size() != 1 || program.inputs[0].dtype != DType::kF32) return out;
  const auto constant = [&](int operand) -> std::optional<float> {
    const int i = operand - program.first_constant();
    if (i < 0 || i >= int(program.constants.size()) || !is_float(program.constants[size_t(i)].dtype))
      return std::nullopt;
    return float(program.constants[size_t(i)].f);
  };
  bool added = false, clamped = false;
  const auto add = [&](int operand) {
    if (operand <= 0 || operand >= int(program.inputs.size()) || clamped) return false;
    const EpilogueOperand& o = operands[size_t(operand)];
    if (!o.f32 || !o.unit_columns) return false;
    int& place = o.row_constant && out.bias == 0 ? out.bias : out.residual;
    if (place != 0) return false;
    place = operand;
    return added = true;
  };
  const auto clamp = [&](float low, float high) {
    if (clamped || !(low <= high)) return false;
    out.low = low;
    out.high = high;
    return clamped = true;
  };
  const float infinity = std::numeric_limits<float>::infinity();
  int value = 0;  // every instruction takes the one before
  for (size_t i = 0; i < program.code.size(); ++i) {
    Instruction c = program.code[i];
    if (c.dtype != DType::kF32) return out;
    const bool commutes = c.op == ScalarOp::kAdd || c.op == ScalarOp::kMul || c.op == ScalarOp::kMin ||
                          c.op == ScalarOp::kMax || c.op == ScalarOp::kFma;
    if (commutes && c.b == value) std::swap(c.a, c.b);
    if (c.a != value || c.b == value || c.c == value) return out;
    bool fits = false;
    switch (c.op) {
      case ScalarOp::kAdd:
        fits = add(c.b);
        break;
      case ScalarOp::kMul:
      case ScalarOp::kDiv:
      case ScalarOp::kFma:
        if (added || clamped || !constant(c.b)) return out;
        out.alpha = c.op == ScalarOp::kDiv ? out.alpha / *constant(c.b) : out.alpha * *constant(c.b);
        fits = c.op != ScalarOp::kFma || add(c.c);
        break;
      case ScalarOp::kRelu:
        fits = clamp(0, infinity);
        break;
      case ScalarOp::kMax:
        fits = constant(c.b) && clamp(*constant(c.b), infinity);
        break;
      case ScalarOp::kMin:
        fits = constant(c.b) && clamp(-infinity, *constant(c.b));
        break;
      case ScalarOp::kClamp:
        fits = constant(c.b) && constant(c.c) && clamp(*constant(c.b), *constant(c.c));
        break;
      default:
        break;
    }
    if (!fits) return out;
    value = program.first_result() + int(i);
  }
  out.ok = program.outputs[0] == value;
  return out;
}

}  // namespace ridgeline::cpu
