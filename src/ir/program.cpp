#include "ir/program.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "ridgeline/error.h"

namespace ridgeline {
namespace {

constexpr std::array<ScalarOpInfo, kScalarOpCount> kOps = {{
    {"cast", 1, 0, false},   {"+", 2, 1, false},         {"-", 2, 1, false},       {"*", 2, 1, false},
    {"/", 2, 1, true},       {"mod", 2, 1, true},        {"fmod", 2, 1, true},     {"pow", 2, 1, true},
    {"min", 2, 1, false},    {"max", 2, 1, false},       {"neg", 1, 1, false},     {"abs", 1, 1, false},
    {"sign", 1, 1, false},   {"reciprocal", 1, 1, true}, {"sqrt", 1, 1, true},     {"rsqrt", 1, 1, true},
    {"square", 1, 1, false}, {"exp", 1, 1, true},        {"log", 1, 1, true},      {"erf", 1, 1, true},
    {"erfc", 1, 1, true},    {"sin", 1, 1, true},        {"cos", 1, 1, true},      {"tan", 1, 1, true},
    {"asin", 1, 1, true},    {"acos", 1, 1, true},       {"atan", 1, 1, true},     {"sinh", 1, 1, true},
    {"cosh", 1, 1, true},    {"tanh", 1, 1, true},       {"asinh", 1, 1, true},    {"acosh", 1, 1, true},
    {"atanh", 1, 1, true},   {"sigmoid", 1, 1, true},    {"softplus", 1, 1, true}, {"relu", 1, 1, false},
    {"floor", 1, 1, false},  {"ceil", 1, 1, false},      {"round", 1, 1, false},   {"clamp", 3, 2, false},
    {"fma", 3, 2, false},    {"select", 3, 1, false},    {"==", 2, 1, false},      {"<", 2, 1, false},
    {"<=", 2, 1, false},     {">", 2, 1, false},         {">=", 2, 1, false},      {"and", 2, 1, false},
    {"or", 2, 1, false},     {"xor", 2, 1, false},       {"not", 1, 1, false},     {"isnan", 1, 1, false},
    {"isinf", 1, 1, false},  {"bitand", 2, 1, false},    {"bitor", 2, 1, false},   {"bitxor", 2, 1, false},
    {"bitnot", 1, 1, false}, {"shl", 2, 1, false},       {"shr", 2, 1, false},
}};

// Renumbers the operands of all instructions and outputs.
template <typename F>
void renumber(Program& p, F&& map) {
  for (Instruction& in : p.code) {
    for (int16_t* operand : {&in.a, &in.b, &in.c}) {
      if (*operand >= 0) *operand = int16_t(map(*operand));
    }
  }
  for (int& output : p.outputs) output = map(output);
}

bool is_constant(const Program& p, int operand) { return operand >= p.first_constant() && operand < p.first_result(); }
bool is_number(const Program& p, int operand, double value) {
  return is_constant(p, operand) && is_float(p.dtype_of(operand)) &&
         p.constants[size_t(operand - p.first_constant())].f == value;
}

int add_constant(Program& p, ProgramConstant value) {
  for (size_t i = 0; i < p.constants.size(); ++i) {
    const ProgramConstant& c = p.constants[i];
    if (c.dtype == value.dtype && c.i == value.i &&
        __builtin_bit_cast(uint64_t, c.f) == __builtin_bit_cast(uint64_t, value.f))
      return p.first_constant() + int(i);
  }
  const int at = p.first_result();
  renumber(p, [at](int o) { return o >= at ? o + 1 : o; });
  p.constants.push_back(value);
  return at;
}

// Appends an instruction unless an equal one stands already.
int add_instruction(Program& p, Instruction in) {
  for (size_t i = 0; i < p.code.size(); ++i) {
    if (p.code[i] == in) return p.first_result() + int(i);
  }
  p.code.push_back(in);
  return p.operands() - 1;
}

}  // namespace

const ScalarOpInfo& info(ScalarOp op) { return kOps[size_t(op)]; }

DType Program::dtype_of(int operand) const {
  if (operand < first_constant()) return inputs[size_t(operand)].dtype;
  if (operand < first_result()) return constants[size_t(operand - first_constant())].dtype;
  return code[size_t(operand - first_result())].dtype;
}

int Program::add_input(std::string name, DType dtype) {
  const int at = int(inputs.size());
  renumber(*this, [at](int o) { return o >= at ? o + 1 : o; });
  inputs.push_back({std::move(name), dtype});
  return at;
}

int Program::flops() const {
  int total = 0;
  for (const Instruction& in : code) total += info(in.op).flops;
  return total;
}

int Program::special_flops() const {
  int total = 0;
  for (const Instruction& in : code) total += info(in.op).special ? 1 : 0;
  return total;
}

int Program::count(ScalarOp op) const {
  return int(std::count_if(code.begin(), code.end(), [op](const Instruction& in) { return in.op == op; }));
}

std::optional<Program> Program::compose(const Program& first, int output, const Program& second, int input,
                                        bool keep_outputs) {
  Program out;
  out.inputs = first.inputs;
  for (size_t i = 0; i < second.inputs.size(); ++i) {
    if (int(i) != input) out.inputs.push_back(second.inputs[i]);
  }
  // Constants are added before any instruction, so that no number moves while code is copied.
  std::vector<int> constants1, constants2;
  for (const ProgramConstant& c : first.constants) constants1.push_back(add_constant(out, c));
  for (const ProgramConstant& c : second.constants) constants2.push_back(add_constant(out, c));
  std::vector<int> results1, results2;
  auto map1 = [&](int o) {
    if (o < first.first_constant()) return o;
    if (o < first.first_result()) return constants1[size_t(o - first.first_constant())];
    return results1[size_t(o - first.first_result())];
  };
  for (Instruction in : first.code) {
    for (int16_t* operand : {&in.a, &in.b, &in.c})
      if (*operand >= 0) *operand = int16_t(map1(*operand));
    results1.push_back(add_instruction(out, in));
  }
  const int fed = map1(first.outputs[size_t(output)]);
  auto map2 = [&](int o) {
    if (o < second.first_constant()) return o == input ? fed : int(first.inputs.size()) + (o > input ? o - 1 : o);
    if (o < second.first_result()) return constants2[size_t(o - second.first_constant())];
    return results2[size_t(o - second.first_result())];
  };
  for (Instruction in : second.code) {
    for (int16_t* operand : {&in.a, &in.b, &in.c})
      if (*operand >= 0) *operand = int16_t(map2(*operand));
    results2.push_back(add_instruction(out, in));
  }
  for (int o : second.outputs) out.outputs.push_back(map2(o));
  if (keep_outputs) {
    for (int o : first.outputs) out.outputs.push_back(map1(o));
  }
  if (int(out.code.size()) > kMostInstructions) return std::nullopt;
  return out;
}

void Program::merge_inputs(int a, int b) {
  assert(a < b);
  renumber(*this, [a, b](int o) { return o == b ? a : o > b ? o - 1 : o; });
  inputs.erase(inputs.begin() + b);
}

void Program::bind_input(int input, ProgramConstant value) {
  const int constant = add_constant(*this, value);
  renumber(*this, [input, constant](int o) {
    const int target = o == input ? constant : o;
    return target > input ? target - 1 : target;
  });
  inputs.erase(inputs.begin() + input);
}

namespace {

// Does the program go to or from a quantized type, or from its sums? There a last digit more or less is a whole level
// wherever a value lies between two: the standard's roundings stay one by one, so that a fused chain equals its nodes
// bit for bit.
bool quantizes(const Program& p) {
  const auto narrow = [](DType t) { return is_float(t) ? info(t).bits <= 8 : t != DType::kBool && info(t).bits <= 32; };
  return std::any_of(p.code.begin(), p.code.end(), [&](const Instruction& in) {
    return in.op == ScalarOp::kCast &&
           ((narrow(in.dtype) && is_float(p.dtype_of(in.a))) || (is_float(in.dtype) && narrow(p.dtype_of(in.a))));
  });
}

// One local rewrite of instruction i; returns the operand that replaces its result, or -1 if it was edited or left.
// `exact`: no other rounding than written.
int rewrite(Program& p, size_t i, bool exact, bool& changed) {
  Instruction& in = p.code[i];
  auto result_of = [&](int operand, ScalarOp op) -> const Instruction* {
    if (operand < p.first_result()) return nullptr;
    const Instruction& from = p.code[size_t(operand - p.first_result())];
    return from.op == op && from.dtype == in.dtype ? &from : nullptr;
  };
  auto become = [&](Instruction next) {
    in = next;
    changed = true;
  };
  const bool floats = is_float(in.dtype);
  if (in.op == ScalarOp::kCast && p.dtype_of(in.a) == in.dtype) return in.a;
  if (!floats) return -1;
  switch (in.op) {
    case ScalarOp::kAdd:
    case ScalarOp::kMul:
    case ScalarOp::kMin:
    case ScalarOp::kMax:
      if (is_constant(p, in.a) && !is_constant(p, in.b)) {
        std::swap(in.a, in.b);
        changed = true;
      }
      break;
    default:
      break;
  }
  switch (in.op) {
    case ScalarOp::kMul:
      if (is_number(p, in.b, 1)) return in.a;
      if (in.a == in.b) become({ScalarOp::kSquare, in.dtype, in.a});
      break;
    case ScalarOp::kDiv:
      if (is_number(p, in.b, 1)) return in.a;
      break;
    case ScalarOp::kPow:
      if (is_number(p, in.b, 1)) return in.a;
      if (is_number(p, in.b, 2))
        become({ScalarOp::kSquare, in.dtype, in.a});
      else if (is_number(p, in.b, 0.5))
        become({ScalarOp::kSqrt, in.dtype, in.a});
      else if (is_number(p, in.b, -1))
        become({ScalarOp::kReciprocal, in.dtype, in.a});
      break;
    case ScalarOp::kSub:
      if (is_number(p, in.b, 0)) return in.a;
      break;
    case ScalarOp::kAdd:
      // x + 0 stays: it turns -0 into 0. A product feeding a sum becomes one rounding (not in f16, where each is
      // rounded).
      if (exact || (in.dtype != DType::kF32 && in.dtype != DType::kF64)) break;
      if (const Instruction* m = result_of(in.a, ScalarOp::kMul))
        become({ScalarOp::kFma, in.dtype, m->a, m->b, in.b});
      else if (const Instruction* n = result_of(in.b, ScalarOp::kMul))
        become({ScalarOp::kFma, in.dtype, n->a, n->b, in.a});
      break;
    case ScalarOp::kMax:
      if (is_number(p, in.b, 0)) become({ScalarOp::kRelu, in.dtype, in.a});
      break;
    case ScalarOp::kMin:
      if (const Instruction* m = result_of(in.a, ScalarOp::kMax); m && is_constant(p, m->b) && is_constant(p, in.b)) {
        become({ScalarOp::kClamp, in.dtype, m->a, m->b, in.b});
      } else if (const Instruction* r = result_of(in.a, ScalarOp::kRelu); r && is_constant(p, in.b)) {
        const int zero = add_constant(p, {in.dtype, 0.0, 0});  // may renumber: `in` stays valid, its numbers move
        Instruction& again = p.code[i];
        const Instruction& relu = p.code[size_t(again.a - p.first_result())];
        again = {ScalarOp::kClamp, again.dtype, relu.a, int16_t(zero), again.b};
        changed = true;
      }
      break;
    default:
      break;
  }
  return -1;
}

}  // namespace

void Program::simplify() {
  const bool exact = quantizes(*this);
  bool changed = true;
  for (int round = 0; changed && round < 16; ++round) {
    changed = false;
    for (size_t i = 0; i < code.size(); ++i) {
      // Constants fold with the exact evaluator.
      const Instruction in = code[i];
      bool all_constant = true;
      for (int operand : {int(in.a), int(in.b), int(in.c)})
        all_constant = all_constant && (operand < 0 || is_constant(*this, operand));
      if (all_constant) {
        Program one;
        Instruction alone{in.op, in.dtype};
        int16_t* slots[] = {&alone.a, &alone.b, &alone.c};
        const int operands[] = {in.a, in.b, in.c};
        for (int k = 0; k < 3; ++k) {
          if (operands[k] < 0) continue;
          one.constants.push_back(constants[size_t(operands[k] - first_constant())]);
          *slots[k] = int16_t(one.constants.size() - 1);
        }
        one.code = {alone};
        one.outputs = {one.first_result()};
        ScalarValue value;
        ridgeline::evaluate(one, {}, {&value, 1});
        const int folded =
            add_constant(*this, {in.dtype, is_float(in.dtype) ? value.f : 0.0, is_float(in.dtype) ? 0 : value.i});
        const int self = first_result() + int(i);
        renumber(*this, [self, folded](int o) { return o == self ? folded : o; });
        code[i] = {ScalarOp::kCast, in.dtype, int16_t(folded)};  // dead now
        changed = changed || in.op != ScalarOp::kCast;
        continue;
      }
      const int replacement = rewrite(*this, i, exact, changed);
      if (replacement >= 0) {
        const int self = first_result() + int(i);
        bool used = false;
        renumber(*this, [self, replacement, &used](int o) {
          used = used || o == self;
          return o == self ? replacement : o;
        });
        changed = changed || used;
      }
    }
    // Dead code, duplicates, unused constants: rebuild in order.
    std::vector<char> live(static_cast<size_t>(operands()), 0);
    for (int o : outputs) live[size_t(o)] = 1;
    for (size_t i = code.size(); i-- > 0;) {
      if (!live[size_t(first_result()) + i]) continue;
      for (int operand : {int(code[i].a), int(code[i].b), int(code[i].c)})
        if (operand >= 0) live[size_t(operand)] = 1;
    }
    Program next;
    next.inputs = inputs;
    std::vector<int> map(static_cast<size_t>(operands()), -1);
    for (int o = 0; o < first_constant(); ++o) map[size_t(o)] = o;
    for (int o = first_constant(); o < first_result(); ++o)
      if (live[size_t(o)]) map[size_t(o)] = add_constant(next, constants[size_t(o - first_constant())]);
    for (size_t i = 0; i < code.size(); ++i) {
      const size_t self = size_t(first_result()) + i;
      if (!live[self]) continue;
      Instruction in = code[i];
      for (int16_t* operand : {&in.a, &in.b, &in.c})
        if (*operand >= 0) *operand = int16_t(map[size_t(*operand)]);
      map[self] = add_instruction(next, in);
    }
    for (int o : outputs) next.outputs.push_back(map[size_t(o)]);
    *this = std::move(next);
  }
}

}  // namespace ridgeline
