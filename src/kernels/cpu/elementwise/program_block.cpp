// Prepares programs for the block interpreter: recognises rich functions, assigns slots.
#include "kernels/cpu/elementwise/program_block.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <optional>

#include "ridgeline/error.h"

namespace ridgeline::cpu {

namespace {

bool in_f32(DType t) { return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16 || t == DType::kBool; }

/// Integers that f32 holds exactly, as results: what quantization casts to.
/// Instructions in bytes that need no more than f32: a saturating cast, and those that return one of their operands.
bool takes_bytes(const Instruction& in) {
  if (!is_byte(in.dtype)) return false;
  switch (in.op) {
    case ScalarOp::kCast:
    case ScalarOp::kMin:
    case ScalarOp::kMax:
    case ScalarOp::kClamp:
    case ScalarOp::kRelu:
      return true;
    default:
      return false;
  }
}

bool is_bitwise(ScalarOp op) { return op >= ScalarOp::kBitAnd && op <= ScalarOp::kShiftRight; }

/// Operands of an instruction that its operator has.
int arity(const Instruction& in) { return in.c >= 0 ? 3 : in.b >= 0 ? 2 : 1; }
int operand(const Instruction& in, int k) { return k == 0 ? in.a : k == 1 ? in.b : in.c; }

/// The part of `p` between value `from` and value `to`, as a program of one input; nothing if it needs another input.
std::optional<Program> between(const Program& p, int from, int to) {
  Program sub;
  sub.inputs.push_back({"x", p.dtype_of(from)});
  sub.constants = p.constants;
  const int first = p.first_result();
  std::vector<int> number(size_t(p.operands()), -1);
  std::vector<bool> needed(size_t(p.operands()), false);
  needed[size_t(to)] = true;
  for (int v = to; v >= first; --v) {
    if (!needed[size_t(v)] || v == from) continue;
    const Instruction& in = p.code[size_t(v - first)];
    for (int k = 0; k < arity(in); ++k) needed[size_t(operand(in, k))] = true;
  }
  number[size_t(from)] = 0;
  for (int v = 0; v <= to; ++v) {
    if (!needed[size_t(v)] || v == from) continue;
    if (v < p.first_constant()) return std::nullopt;
    if (v < first) {
      number[size_t(v)] = 1 + v - p.first_constant();
      continue;
    }
    Instruction in = p.code[size_t(v - first)];
    if (in.dtype != DType::kF32) return std::nullopt;
    in.a = int16_t(number[size_t(in.a)]);
    if (in.b >= 0) in.b = int16_t(number[size_t(in.b)]);
    if (in.c >= 0) in.c = int16_t(number[size_t(in.c)]);
    number[size_t(v)] = sub.first_result() + int(sub.code.size());
    sub.code.push_back(in);
  }
  sub.outputs.push_back(number[size_t(to)]);
  return sub;
}

int16_t rich_op(const Program& sub) {
  struct Known {
    BlockOp op;
    Program program;
  };
  auto known = [](BlockOp op, std::string_view expression) {
    static constexpr std::string_view kNames[] = {"x"};
    return Known{op, Program::parse(expression, kNames, DType::kF32)};
  };
  static const Known kKnown[] = {known(kGelu, "x * 0.5 * erfc(-x * 0.70710678118654752)"),
                                 known(kSiLU, "x * sigmoid(x)"), known(kHardSwish, "x * clamp(x / 6 + 0.5, 0, 1)")};
  for (const Known& k : kKnown)
    if (same_function(sub, k.program)) return k.op;
  return -1;
}

/// None of them does without one of these: asked first, for sampling a function at many points takes microseconds.
bool may_be_rich(const Program& sub) {
  for (const Instruction& in : sub.code) {
    switch (in.op) {
      case ScalarOp::kErf:
      case ScalarOp::kErfc:
      case ScalarOp::kSigmoid:
      case ScalarOp::kExp:
      case ScalarOp::kTanh:
      case ScalarOp::kClamp:
      case ScalarOp::kMin:
      case ScalarOp::kMax:
      case ScalarOp::kRelu:
        return true;
      default:
        break;
    }
  }
  return false;
}

bool is_number(const Program& p, int v, double number) {
  return v >= p.first_constant() && v < p.first_result() && is_float(p.dtype_of(v)) &&
         p.constants[size_t(v - p.first_constant())].f == number;
}

/// e^x - 1, in either spelling: the operand of its exponential, or -1.
int expm1_operand(const Program& p, const Instruction& in) {
  int e = -1;
  if (in.op == ScalarOp::kSub && is_number(p, in.b, 1)) e = in.a;
  if (in.op == ScalarOp::kAdd && is_number(p, in.b, -1)) e = in.a;
  if (in.op == ScalarOp::kAdd && is_number(p, in.a, -1)) e = in.b;
  if (e < p.first_result()) return -1;
  const Instruction& exponential = p.code[size_t(e - p.first_result())];
  return exponential.op == ScalarOp::kExp && exponential.dtype == DType::kF32 ? exponential.a : -1;
}

}  // namespace

// Only chains of at least two instructions that end in a product (as GELU, SiLU and HardSwish do) are looked at, so
// that planning stays fast.
ProgramFunction function_at(const Program& p, int to) {
  const Instruction& last = p.code[size_t(to - p.first_result())];
  if (last.dtype != DType::kF32 ||
      (last.op != ScalarOp::kMul && last.op != ScalarOp::kDiv && last.op != ScalarOp::kFma))
    return {};
  for (int from = 0; from < to; ++from) {
    if (from >= p.first_constant() && from < p.first_result()) continue;
    if (p.dtype_of(from) != DType::kF32) continue;
    const std::optional<Program> sub = between(p, from, to);
    if (!sub || sub->code.size() < 2 || sub->code.size() > 12 || !may_be_rich(*sub)) continue;
    if (const int16_t op = rich_op(*sub); op >= 0) return {from, op};
  }
  return {};
}

std::string PreparedProgram::reject(const Program& p) {
  for (const ProgramInput& input : p.inputs)
    if (input.dtype == DType::kF64 || info(input.dtype).bits < 8 || (is_float(input.dtype) && !in_f32(input.dtype)))
      return std::string("input ") + input.name + " is " + std::string(name(input.dtype));
  for (const Instruction& in : p.code) {
    if (is_bitwise(in.op)) return "bitwise instructions";
    if (!in_f32(in.dtype) && !takes_bytes(in)) return std::string("an instruction in ") + std::string(name(in.dtype));
    for (int k = 0; k < arity(in); ++k) {
      const int v = operand(in, k);
      const DType t = p.dtype_of(v);
      if (in_f32(t)) continue;
      if (in.op == ScalarOp::kCast ? is_float(in.dtype) || t == in.dtype : takes_bytes(in) && t == in.dtype) continue;
      return fmt::format("computes with {} {}", name(t),
                         v < p.first_constant() ? "input " + p.inputs[size_t(v)].name : std::string("values"));
    }
  }
  for (int out : p.outputs)
    if (!in_f32(p.dtype_of(out)) && !is_byte(p.dtype_of(out)))
      return std::string("an output in ") + std::string(name(p.dtype_of(out)));
  if (int(p.inputs.size() + p.constants.size() + 2 * p.code.size()) > kMostSlots)
    return "too many operands for its slots";
  return "";
}

PreparedProgram::PreparedProgram(const Program& source) {
  assert(reject(source).empty());
  const Program& p = source;
  const int first = p.first_result(), total = p.operands();
  for (const ProgramInput& input : p.inputs) inputs_.push_back({int16_t(inputs_.size()), input.dtype});
  for (const ProgramConstant& c : p.constants) constants_.push_back(is_float(c.dtype) ? float(c.f) : float(c.i));

  // Operands are f32 in their slots whatever their type: a cast to f32 is the same number.
  std::vector<int> same(size_t(total), 0);
  for (int v = 0; v < total; ++v) {
    same[size_t(v)] = v;
    if (v < first) continue;
    const Instruction& in = p.code[size_t(v - first)];
    if (in.op == ScalarOp::kCast && (in.dtype == DType::kF32 || in.dtype == p.dtype_of(in.a)))
      same[size_t(v)] = same[size_t(in.a)];
  }
  const auto root = [&](int v) { return int16_t(v < 0 ? v : same[size_t(v)]); };

  // From the outputs back: what is needed, each value by its instruction or by a recognised function.
  std::vector<Step> plan(size_t(total), Step{-1, -1, -1, -1, -1});  // operands are still value numbers
  std::vector<bool> needed(size_t(total), false);
  for (int out : p.outputs) needed[size_t(root(out))] = true;
  for (int v = total - 1; v >= first; --v) {
    if (!needed[size_t(v)]) continue;
    const Instruction& in = p.code[size_t(v - first)];
    Step& step = plan[size_t(v)];
    if (const ProgramFunction rich = function_at(p, v); rich.op >= 0) {
      step = {rich.op, int16_t(v), root(rich.from), -1, -1};
    } else if (const int x = expm1_operand(p, in); x >= 0 && in.dtype == DType::kF32) {
      step = {kExpm1, int16_t(v), root(x), -1, -1};
    } else {
      step = {int16_t(in.op), int16_t(v), root(in.a), root(in.b), root(in.c)};
      if (in.op == ScalarOp::kCast)
        step.op = in.dtype == DType::kBool ? kToBool
                  : in.dtype == DType::kU8 ? kToU8
                  : in.dtype == DType::kI8 ? kToI8
                                           : kCopy;
    }
    for (int operand : {step.a, step.b, step.c})
      if (operand >= 0) needed[size_t(operand)] = true;
  }

  // Last uses, then slots by a linear scan: a result may take the slot of an operand that dies with it (each vector is
  // read before it is written).
  std::vector<int> last_use(size_t(total), -1);
  for (int v = first; v < total; ++v) {
    const Step& step = plan[size_t(v)];
    if (!needed[size_t(v)]) continue;
    for (int operand : {step.a, step.b, step.c})
      if (operand >= 0) last_use[size_t(operand)] = v;
  }
  for (int out : p.outputs) last_use[size_t(root(out))] = total;
  std::vector<int16_t> slot(size_t(total), -1);
  for (int v = 0; v < first; ++v) slot[size_t(v)] = int16_t(v);
  std::vector<int16_t> free;
  int next = first;
  for (int v = first; v < total; ++v) {
    if (!needed[size_t(v)]) continue;
    Step step = plan[size_t(v)];
    for (int operand : {step.a, step.b, step.c}) {
      if (operand < first || last_use[size_t(operand)] != v) continue;
      last_use[size_t(operand)] = -1;  // once, though it be two operands
      free.push_back(slot[size_t(operand)]);
    }
    if (free.empty()) {
      slot[size_t(v)] = int16_t(next++);
    } else {
      slot[size_t(v)] = free.back();
      free.pop_back();
    }
    step.dst = slot[size_t(v)];
    step.a = slot[size_t(step.a)];
    if (step.b >= 0) step.b = slot[size_t(step.b)];
    if (step.c >= 0) step.c = slot[size_t(step.c)];
    steps_.push_back(step);
    const DType dtype = p.dtype_of(v);
    if (dtype == DType::kF16) steps_.push_back({kRoundF16, step.dst, step.dst, -1, -1});
    if (dtype == DType::kBF16) steps_.push_back({kRoundBF16, step.dst, step.dst, -1, -1});
  }
  assert(next <= kMostSlots);
  slots_ = next;
  for (int out : p.outputs) outputs_.push_back({slot[size_t(root(out))], p.dtype_of(out)});
  last_is_output_ =
      outputs_.size() == 1 && !steps_.empty() && root(p.outputs[0]) >= first && steps_.back().dst == outputs_[0].slot;
}

PreparedProgram::View PreparedProgram::view() const {
  return {steps_.data(),        inputs_.data(),         outputs_.data(),
          constants_.data(),    int(steps_.size()),     int(inputs_.size()),
          int(outputs_.size()), int(constants_.size()), slots_,
          last_is_output_};
}

}  // namespace ridgeline::cpu
