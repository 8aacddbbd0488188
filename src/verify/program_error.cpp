// Running error analysis: each instruction adds its own rounding to the errors of its operands, which are carried
// through the function itself (evaluated at the operand plus and minus its error), so that amplification is seen where
// it happens.
#include <algorithm>
#include <cmath>
#include <limits>

#include "verify/check_parts.h"

namespace ridgeline {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Results that are one of the operands, or whole numbers: nothing is rounded.
bool is_exact(ScalarOp op) {
  switch (op) {
    case ScalarOp::kMin:
    case ScalarOp::kMax:
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
    case ScalarOp::kSign:
    case ScalarOp::kRelu:
    case ScalarOp::kFloor:
    case ScalarOp::kCeil:
    case ScalarOp::kRound:
    case ScalarOp::kClamp:
    case ScalarOp::kSelect:
    case ScalarOp::kFmod:
      return true;
    default:
      return false;
  }
}

// The instruction alone, its operands as inputs.
Program alone(const Program& program, const Instruction& in) {
  Program p;
  Instruction code = in;
  for (int16_t* operand : {&code.a, &code.b, &code.c}) {
    if (*operand < 0) continue;
    p.inputs.push_back({"x", program.dtype_of(*operand)});
    *operand = int16_t(p.inputs.size() - 1);
  }
  p.code = {code};
  p.outputs = {p.operands() - 1};
  return p;
}

double smallest(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 4.9e-324;
    case DType::kF16:
      return 0x1p-24;
    case DType::kBF16:
      return 0x1p-133;
    default:
      return 0x1p-149;
  }
}

double distance(const ScalarValue& a, const ScalarValue& b, bool floats) {
  if (!floats) return a.i == b.i ? 0 : std::fabs(double(a.i) - double(b.i));
  if (a.f == b.f || (std::isnan(a.f) && std::isnan(b.f))) return 0;
  const double d = std::fabs(a.f - b.f);
  return std::isnan(d) ? kInfinity : d;
}

}  // namespace

std::vector<double> program_error(const Program& program, const std::vector<ScalarValue>& inputs,
                                  const std::vector<double>& input_error, double special_ulps) {
  std::vector<ScalarValue> values(size_t(program.operands()));
  std::vector<double> error(size_t(program.operands()), 0);
  std::copy(inputs.begin(), inputs.end(), values.begin());
  std::copy(input_error.begin(), input_error.end(), error.begin());
  for (size_t k = 0; k < program.constants.size(); ++k) {
    const ProgramConstant& constant = program.constants[k];
    const size_t at = size_t(program.first_constant()) + k;
    values[at] = {constant.f, constant.i};
    if (constant.dtype == DType::kF32)
      error[at] = std::fabs(double(float(constant.f)) - constant.f);  // kernels keep it in f32
  }
  for (size_t k = 0; k < program.code.size(); ++k) {
    const Instruction& in = program.code[k];
    const Program single = alone(program, in);
    const size_t at = size_t(program.first_result()) + k;
    const bool floats = is_float(in.dtype);
    std::vector<int> operands;
    for (int operand : {int(in.a), int(in.b), int(in.c)}) {
      if (operand >= 0) operands.push_back(operand);
    }
    std::vector<ScalarValue> x;
    for (int operand : operands) x.push_back(values[size_t(operand)]);
    evaluate(single, x, {&values[at], 1});
    double sum = 0;
    for (size_t j = 0; j < operands.size(); ++j) {
      const double e = error[size_t(operands[j])];
      if (e == 0) continue;
      const ScalarValue kept = x[j];
      if (!is_float(single.inputs[j].dtype)) {  // a bool or integer that may be another one
        if (single.inputs[j].dtype != DType::kBool) return std::vector<double>(program.outputs.size(), kInfinity);
        x[j].i = !kept.i;
        ScalarValue other;
        evaluate(single, x, {&other, 1});
        sum += distance(other, values[at], floats);
      } else if (in.op == ScalarOp::kSelect) {
        sum = std::max(sum, (values[size_t(in.a)].i != 0) == (j == 1) ? e : 0);
      } else {
        double worst = 0;
        for (double sign : {-1.0, 1.0}) {
          x[j].f = kept.f + sign * e;
          ScalarValue other;
          evaluate(single, x, {&other, 1});
          worst = std::max(worst, distance(other, values[at], floats));
        }
        sum += worst;
      }
      x[j] = kept;
    }
    if (floats && !is_exact(in.op) && std::isfinite(values[at].f)) {
      const bool narrow = info(in.dtype).bits < 32;
      // A narrow type is computed in f32 and rounded: near a tie it may go the other way.
      const double ulps = in.op == ScalarOp::kCast ? (in.dtype == DType::kF32 ? 0.5
                                                      : narrow && sum > 0     ? 1
                                                                              : 0)
                          : narrow                 ? 1
                          : info(in.op).special    ? special_ulps
                                                   : 1;
      sum += ulps * (info(in.dtype).epsilon * std::fabs(values[at].f) + smallest(in.dtype));
    }
    error[at] = std::isnan(sum) ? kInfinity : sum;
  }
  std::vector<double> results;
  for (int output : program.outputs) results.push_back(error[size_t(output)]);
  return results;
}

}  // namespace ridgeline
