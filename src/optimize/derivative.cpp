// The derivative of a Program with respect to one of its inputs, instruction by instruction.
#include <cmath>
#include <numbers>

#include "optimize/gradient.h"

namespace ridgeline {
namespace {

constexpr int kZero = -1;  // a derivative that vanishes

/// The program as a list in which anything can be appended; numbered at the end. Items refer to each other by index.
class Tape {
 public:
  explicit Tape(const Program& program) {
    for (const ProgramInput& input : program.inputs) items_.push_back({Kind::kInput, input, {}, {}});
    for (const ProgramConstant& constant : program.constants) items_.push_back({Kind::kConstant, {}, constant, {}});
    for (const Instruction& instruction : program.code) items_.push_back({Kind::kCode, {}, {}, instruction});
  }
  int input(const std::string& name, DType dtype) { return push({Kind::kInput, {name, dtype}, {}, {}}); }
  int constant(double value, DType dtype) { return push({Kind::kConstant, {}, {dtype, value, 0}, {}}); }
  int code(ScalarOp op, DType dtype, int a, int b = -1, int c = -1) {
    return push({Kind::kCode, {}, {}, {op, dtype, int16_t(a), int16_t(b), int16_t(c)}});
  }
  DType dtype(int item) const {
    const Item& i = items_[size_t(item)];
    return i.kind == Kind::kInput ? i.input.dtype : i.kind == Kind::kConstant ? i.constant.dtype : i.code.dtype;
  }

  Program program(int output) const {
    Program p;
    std::vector<int> number(items_.size(), -1);
    int next = 0;
    for (Kind kind : {Kind::kInput, Kind::kConstant, Kind::kCode}) {
      for (size_t k = 0; k < items_.size(); ++k) {
        if (items_[k].kind != kind) continue;
        number[k] = next++;
        if (kind == Kind::kInput) p.inputs.push_back(items_[k].input);
        if (kind == Kind::kConstant) p.constants.push_back(items_[k].constant);
        if (kind == Kind::kCode) p.code.push_back(items_[k].code);
      }
    }
    for (Instruction& i : p.code)
      for (int16_t* operand : {&i.a, &i.b, &i.c})
        if (*operand >= 0) *operand = int16_t(number[size_t(*operand)]);
    p.outputs = {number[size_t(output)]};
    return p;
  }

 private:
  enum class Kind { kInput, kConstant, kCode };
  struct Item {
    Kind kind;
    ProgramInput input;
    ProgramConstant constant;
    Instruction code;
  };
  int push(Item item) {
    items_.push_back(std::move(item));
    return int(items_.size()) - 1;
  }
  std::vector<Item> items_;
};

/// Rules in which a zero derivative costs nothing.
class Rules {
 public:
  Rules(Tape& tape, DType dtype) : tape_(tape), dtype_(dtype) {}
  int op(ScalarOp o, int a, int b = -1, int c = -1) { return tape_.code(o, dtype_, a, b, c); }
  int number(double v) { return tape_.constant(v, dtype_); }
  int mul(int a, int b) { return a == kZero || b == kZero ? kZero : op(ScalarOp::kMul, a, b); }
  int times(double v, int a) { return a == kZero ? kZero : op(ScalarOp::kMul, a, number(v)); }
  int add(int a, int b) { return a == kZero ? b : b == kZero ? a : op(ScalarOp::kAdd, a, b); }
  int sub(int a, int b) { return b == kZero ? a : a == kZero ? op(ScalarOp::kNeg, b) : op(ScalarOp::kSub, a, b); }
  int div(int a, int b) { return a == kZero ? kZero : op(ScalarOp::kDiv, a, b); }
  int one_minus(int a) { return op(ScalarOp::kSub, number(1), a); }
  int square(int a) { return op(ScalarOp::kSquare, a); }
  int compare(ScalarOp o, int a, int b) { return tape_.code(o, DType::kBool, a, b); }
  /// condition ? a : b, either of which may vanish.
  int select(int condition, int a, int b) {
    if (a == kZero && b == kZero) return kZero;
    return op(ScalarOp::kSelect, condition, a == kZero ? number(0) : a, b == kZero ? number(0) : b);
  }

 private:
  Tape& tape_;
  DType dtype_;
};

/// d(result) from the derivatives of the operands.
int differentiate(Tape& tape, const Instruction& i, int result, int da, int db, int dc) {
  using enum ScalarOp;
  Rules r(tape, i.dtype);
  const int a = i.a, b = i.b, c = i.c;
  switch (i.op) {
    case kCast:
      return da == kZero || !is_float(tape.dtype(a)) ? kZero : r.op(kCast, da);
    case kAdd:
      return r.add(da, db);
    case kSub:
      return r.sub(da, db);
    case kMul:
      return r.add(r.mul(da, b), r.mul(a, db));
    case kDiv:
      return r.div(r.sub(da, r.mul(result, db)), b);
    case kMod:
    case kFmod:
      return db == kZero ? da : r.sub(da, r.mul(r.div(r.sub(a, result), b), db));
    case kPow: {
      int d = da == kZero ? kZero : r.mul(da, r.op(kMul, b, r.op(kPow, a, r.op(kSub, b, r.number(1)))));
      return db == kZero ? d : r.add(d, r.mul(db, r.op(kMul, r.op(kLog, a), result)));
    }
    case kMin:
      return r.select(r.compare(kLessOrEqual, a, b), da, db);
    case kMax:
      return r.select(r.compare(kGreaterOrEqual, a, b), da, db);
    case kSelect:
      return r.select(a, db, dc);
    case kClamp:
      return r.select(r.compare(kLess, a, b), db, r.select(r.compare(kGreater, a, c), dc, da));
    case kFma:
      return r.add(r.add(r.mul(da, b), r.mul(a, db)), dc);
    default:
      break;
  }
  if (da == kZero) return kZero;
  switch (i.op) {
    case kNeg:
      return r.op(kNeg, da);
    case kAbs:
      return r.mul(da, r.op(kSign, a));
    case kReciprocal:
      return r.op(kNeg, r.mul(da, r.square(result)));
    case kSqrt:
      return r.div(r.times(0.5, da), result);
    case kRsqrt:
      return r.mul(r.times(-0.5, da), r.mul(result, r.square(result)));
    case kSquare:
      return r.times(2, r.mul(a, da));
    case kExp:
      return r.mul(da, result);
    case kLog:
      return r.div(da, a);
    case kErf:
      return r.mul(r.times(2 * std::numbers::inv_sqrtpi, da), r.op(kExp, r.op(kNeg, r.square(a))));
    case kErfc:
      return r.mul(r.times(-2 * std::numbers::inv_sqrtpi, da), r.op(kExp, r.op(kNeg, r.square(a))));
    case kSin:
      return r.mul(da, r.op(kCos, a));
    case kCos:
      return r.op(kNeg, r.mul(da, r.op(kSin, a)));
    case kTan:
      return r.mul(da, r.add(r.number(1), r.square(result)));
    case kAsin:
      return r.mul(da, r.op(kRsqrt, r.one_minus(r.square(a))));
    case kAcos:
      return r.op(kNeg, r.mul(da, r.op(kRsqrt, r.one_minus(r.square(a)))));
    case kAtan:
      return r.div(da, r.add(r.number(1), r.square(a)));
    case kSinh:
      return r.mul(da, r.op(kCosh, a));
    case kCosh:
      return r.mul(da, r.op(kSinh, a));
    case kTanh:
      return r.mul(da, r.one_minus(r.square(result)));
    case kAsinh:
      return r.mul(da, r.op(kRsqrt, r.add(r.square(a), r.number(1))));
    case kAcosh:
      return r.mul(da, r.op(kRsqrt, r.sub(r.square(a), r.number(1))));
    case kAtanh:
      return r.div(da, r.one_minus(r.square(a)));
    case kSigmoid:
      return r.mul(da, r.mul(result, r.one_minus(result)));
    case kSoftplus:
      return r.mul(da, r.op(kSigmoid, a));
    case kRelu:
      return r.select(r.compare(kGreater, a, r.number(0)), da, kZero);
    default:
      return kZero;  // steps, comparisons, bits
  }
}

}  // namespace

std::optional<Program> derivative(const Program& program, int input, int output) {
  Tape tape(program);
  const DType dy_dtype = program.output_dtype(output), x_dtype = program.inputs[size_t(input)].dtype;
  if (!is_float(dy_dtype) || !is_float(x_dtype)) return std::nullopt;
  std::vector<int> d(size_t(program.operands()), kZero);
  const int dy = tape.input("dy", dy_dtype);
  d[size_t(input)] = tape.constant(1, x_dtype);
  auto of = [&](int operand) { return operand < 0 ? kZero : d[size_t(operand)]; };
  for (int k = 0; k < int(program.code.size()); ++k) {
    const Instruction& i = program.code[size_t(k)];
    const int result = program.first_result() + k;
    const bool depends = of(i.a) != kZero || of(i.b) != kZero || of(i.c) != kZero;
    if (depends) d[size_t(result)] = differentiate(tape, i, result, of(i.a), of(i.b), of(i.c));
  }
  int slope = of(program.outputs[size_t(output)]);
  if (slope == kZero) return std::nullopt;
  int y = tape.code(ScalarOp::kMul, dy_dtype, slope, dy);
  if (dy_dtype != x_dtype) y = tape.code(ScalarOp::kCast, x_dtype, y);
  Program result = tape.program(y);
  result.simplify();
  if (int(result.code.size()) > Program::kMostInstructions)
    fail(ErrorCode::kUnsupported, "unsupported: the derivative of a program of {} instructions has {}",
         program.code.size(), result.code.size());
  return result;
}

}  // namespace ridgeline
