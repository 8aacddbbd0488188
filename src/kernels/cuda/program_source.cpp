#include "kernels/cuda/program_source.h"

#include <fmt/format.h>

#include <cmath>

namespace ridgeline::cuda {
namespace {

bool is_half(DType t) { return t == DType::kF16 || t == DType::kBF16; }

std::string number(const ProgramConstant& c) {
  if (!is_float(c.dtype)) {
    if (c.dtype == DType::kI64 && c.i == INT64_MIN) return "(-9223372036854775807ll - 1)";
    return info(c.dtype).is_signed ? fmt::format("{}ll", c.i) : fmt::format("{}ull", uint64_t(c.i));
  }
  if (std::isnan(c.f)) return "not_a_number()";
  if (std::isinf(c.f)) return c.f > 0 ? "infinity()" : "-infinity()";
  // Hexadecimal: every bit as it is. Through double, rounded to float by the declaration.
  return fmt::format("{:a}", c.f);
}

// The x of `x * 0.5 * erfc(-x * 0.7071...)` in 16-bit floats, if instruction `index` is that product; else -1. Its
// inner roundings are left out: the function is computed at once and rounded once.
int gelu_operand(const Program& p, size_t index) {
  const auto made = [&](int operand) -> const Instruction* {
    const int at = operand - p.first_result();
    return at >= 0 ? &p.code[size_t(at)] : nullptr;
  };
  const auto constant = [&](int operand) {
    const int at = operand - p.first_constant();
    return at >= 0 && operand < p.first_result() ? p.constants[size_t(at)].f : 0.0;
  };
  // Operand of a product with a constant near `value`; -1: it is none.
  const auto times = [&](int operand, double value) {
    const Instruction* in = made(operand);
    if (!in || in->op != ScalarOp::kMul) return -1;
    if (std::fabs(constant(in->b) - value) < 4e-3) return int(in->a);
    return std::fabs(constant(in->a) - value) < 4e-3 ? int(in->b) : -1;
  };
  const Instruction& product = p.code[index];
  if (product.op != ScalarOp::kMul || !is_half(product.dtype)) return -1;
  for (const auto& [half, other] : {std::pair{product.a, product.b}, std::pair{product.b, product.a}}) {
    const int x = times(half, 0.5);
    const Instruction* erfc = made(other);
    if (x < 0 || !erfc || erfc->op != ScalarOp::kErfc) continue;
    constexpr double kRootHalf = 0.70710678118654752;
    if (times(erfc->a, -kRootHalf) == x) return x;
    if (const int negated = times(erfc->a, kRootHalf); negated >= 0)
      if (const Instruction* in = made(negated); in && in->op == ScalarOp::kNeg && in->a == x) return x;
    if (const Instruction* in = made(erfc->a); in && in->op == ScalarOp::kNeg && times(in->a, kRootHalf) == x) return x;
  }
  return -1;
}

// A call of the prelude's function of that name, or an operator of C++ where that means the same.
std::string expression(const Program& p, const Instruction& in) {
  const auto v = [](int operand) { return fmt::format("v{}", operand); };
  const std::string a = v(in.a), b = v(in.b), c = v(in.c);
  const bool whole = !is_float(p.dtype_of(in.a));
  switch (in.op) {
    case ScalarOp::kCast:
      return fmt::format("cast<{}>({})", register_type(in.dtype), a);
    case ScalarOp::kAdd:
      return a + " + " + b;
    case ScalarOp::kSub:
      return a + " - " + b;
    case ScalarOp::kMul:
      return a + " * " + b;
    case ScalarOp::kDiv:
      return whole ? fmt::format("divide_whole({}, {})", a, b) : a + " / " + b;
    case ScalarOp::kNeg:
      return "-" + a;
    case ScalarOp::kSquare:
      return a + " * " + a;
    case ScalarOp::kEqual:
      return a + " == " + b;
    case ScalarOp::kLess:
      return a + " < " + b;
    case ScalarOp::kLessOrEqual:
      return a + " <= " + b;
    case ScalarOp::kGreater:
      return a + " > " + b;
    case ScalarOp::kGreaterOrEqual:
      return a + " >= " + b;
    case ScalarOp::kAnd:
    case ScalarOp::kBitAnd:
      return a + " & " + b;
    case ScalarOp::kOr:
    case ScalarOp::kBitOr:
      return a + " | " + b;
    case ScalarOp::kXor:
    case ScalarOp::kBitXor:
      return a + " ^ " + b;
    case ScalarOp::kNot:
      return "!" + a;
    case ScalarOp::kBitNot:
      return "~" + a;
    case ScalarOp::kSelect:
      return fmt::format("{} ? {} : {}", a, b, c);
    default:
      break;
  }
  std::string arguments = a;
  if (in.b >= 0) arguments += ", " + b;
  if (in.c >= 0) arguments += ", " + c;
  return fmt::format("op_{}({})", info(in.op).name, arguments);
}

}  // namespace

std::string register_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "double";
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return "float";
    default:
      return storage_type(dtype);
  }
}

std::string storage_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "double";
    case DType::kF32:
      return "float";
    case DType::kF16:
      return "f16";
    case DType::kBF16:
      return "bf16";
    case DType::kI8:
      return "signed char";
    case DType::kI16:
      return "short";
    case DType::kI32:
      return "int";
    case DType::kI64:
      return "long long";
    case DType::kU8:
      return "unsigned char";
    case DType::kU16:
      return "unsigned short";
    case DType::kU32:
      return "unsigned";
    case DType::kU64:
      return "unsigned long long";
    case DType::kBool:
      return "bool";
    default:
      return "";
  }
}

bool printable(const Program& program) {
  const auto known = [](DType t) { return !storage_type(t).empty(); };
  for (int i = 0; i < program.operands(); ++i)
    if (!known(program.dtype_of(i))) return false;
  return true;
}

std::string program_function(const Program& program, const std::string& name) {
  std::string text = fmt::format("__device__ __forceinline__ void {}(", name);
  for (size_t i = 0; i < program.inputs.size(); ++i)
    text += fmt::format("const {} v{}, ", register_type(program.inputs[i].dtype), i);
  for (size_t o = 0; o < program.outputs.size(); ++o)
    text += fmt::format("{}{}& r{}", o ? ", " : "", register_type(program.output_dtype(int(o))), o);
  text += ") {\n";
  for (size_t i = 0; i < program.constants.size(); ++i) {
    const ProgramConstant& c = program.constants[i];
    text += fmt::format("  const {0} v{1} = ({0})({2});\n", register_type(c.dtype), program.first_constant() + int(i),
                        number(c));
  }
  for (size_t i = 0; i < program.code.size(); ++i) {
    const Instruction& in = program.code[i];
    std::string value = expression(program, in);
    if (is_half(in.dtype) && in.op == ScalarOp::kErfc) value = fmt::format("op_erfc_16(v{})", in.a);
    if (const int x = gelu_operand(program, i); x >= 0) value = fmt::format("op_gelu_16(v{})", x);
    if (is_half(in.dtype)) value = fmt::format("round_to_{}({})", ridgeline::name(in.dtype), value);
    // Wraps to the type, as the reference does after each instruction.
    text += fmt::format("  const {0} v{1} = ({0})({2});\n", register_type(in.dtype), program.first_result() + int(i),
                        value);
  }
  for (size_t o = 0; o < program.outputs.size(); ++o) text += fmt::format("  r{} = v{};\n", o, program.outputs[o]);
  return text + "}\n";
}

}  // namespace ridgeline::cuda
