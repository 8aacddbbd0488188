// From an elementwise operator to its Program: the schema's expression, or one of the few operators that no expression
// can say (variadic, optional operands, other dtypes).
#include <array>
#include <cmath>

#include "ir/graph.h"

namespace ridgeline {
namespace {

constexpr std::array<std::string_view, 8> kNames = {"x", "y", "z", "u", "v", "w", "p", "q"};

Program with_inputs(std::span<const DType> dtypes) {
  Program p;
  for (size_t i = 0; i < dtypes.size(); ++i)
    p.inputs.push_back({i < kNames.size() ? std::string(kNames[i]) : fmt::format("x{}", i), dtypes[i]});
  return p;
}

int emit(Program& p, ScalarOp op, DType dtype, int a, int b = -1, int c = -1) {
  p.code.push_back({op, dtype, int16_t(a), int16_t(b), int16_t(c)});
  return p.operands() - 1;
}

Program fold(ScalarOp op, std::span<const DType> dtypes, bool mean) {
  Program p = with_inputs(dtypes);
  if (mean) p.constants.push_back({dtypes[0], double(dtypes.size()), int64_t(dtypes.size())});
  int result = 0;
  for (int i = 1; i < int(dtypes.size()); ++i) result = emit(p, op, dtypes[0], result, i);
  if (mean) result = emit(p, ScalarOp::kDiv, dtypes[0], result, p.first_constant());
  p.outputs = {result};
  return p;
}

Program clip(std::span<const DType> dtypes) {
  std::vector<DType> present;
  for (DType d : dtypes)
    if (d != DType::kNone) present.push_back(d);
  Program p = with_inputs(present);
  const bool low = dtypes.size() > 1 && dtypes[1] != DType::kNone;
  const bool high = dtypes.size() > 2 && dtypes[2] != DType::kNone;
  int result = 0;
  if (low && high)
    result = emit(p, ScalarOp::kClamp, dtypes[0], 0, 1, 2);
  else if (low)
    result = emit(p, ScalarOp::kMax, dtypes[0], 0, 1);
  else if (high)
    result = emit(p, ScalarOp::kMin, dtypes[0], 0, 1);
  p.outputs = {result};
  return p;
}

Program power(std::span<const DType> dtypes) {
  Program p = with_inputs(dtypes);
  int exponent = 1;
  // An integer base with a float exponent is raised in double and truncated; any other pair in the base's type.
  if (dtypes[0] != dtypes[1] && (is_float(dtypes[0]) || !is_float(dtypes[1])))
    exponent = emit(p, ScalarOp::kCast, dtypes[0], 1);
  p.outputs = {emit(p, ScalarOp::kPow, dtypes[0], 0, exponent)};
  return p;
}

int constant(Program& p, DType dtype, double value) {  // before any instruction: they are numbered after it
  p.constants.push_back({dtype, value, 0});
  return p.first_result() - 1;
}

// To f8e8m0, in double, where each step is exact. An instruction rounds up to the next power of two, within the range.
int cast_to_scale(Program& p, bool saturate, const std::string& mode) {
  constexpr DType kWide = DType::kF64, kScale = DType::kF8E8M0;
  const int half = constant(p, kWide, std::nextafter(0.5, 1.0)), two = constant(p, kWide, 2),
            three = constant(p, kWide, 3), least = constant(p, kWide, 0x1p-127), most = constant(p, kWide, 0x1p127),
            nan = constant(p, kWide, std::nan(""));
  const int x = emit(p, ScalarOp::kCast, kWide, 0);
  int y = x;
  if (mode != "up") {
    // The power of two at or below x: the one at or above x / 2 and the least bit more.
    const int below = emit(p, ScalarOp::kCast, kScale, emit(p, ScalarOp::kMul, kWide, x, half));
    y = emit(p, ScalarOp::kCast, kWide, below);
    if (mode == "nearest") {  // of p and 2p; halfway, 3/2 p, goes up
      const int upper = emit(p, ScalarOp::kGreaterOrEqual, DType::kBool, emit(p, ScalarOp::kMul, kWide, x, two),
                             emit(p, ScalarOp::kMul, kWide, y, three));
      y = emit(p, ScalarOp::kSelect, kWide, upper, emit(p, ScalarOp::kMul, kWide, y, two), y);
    }
  }
  if (!saturate) {
    const int inside = emit(p, ScalarOp::kAnd, DType::kBool, emit(p, ScalarOp::kGreaterOrEqual, DType::kBool, x, least),
                            emit(p, ScalarOp::kLessOrEqual, DType::kBool, x, most));
    y = emit(p, ScalarOp::kSelect, kWide, inside, y, nan);
  }
  return emit(p, ScalarOp::kCast, kScale, y);
}

// The table of ONNX Cast-28. What is too large for an f8 becomes infinity or NaN by itself, so saturation is a clamp.
Program cast(const OpSchema& op, const Attributes& attributes, std::span<const DType> dtypes, DType to) {
  Program p = with_inputs(dtypes);
  const DType from = dtypes[0];
  const bool saturate = schema_integer(op, attributes, "saturate") != 0;
  if (from != to && to == DType::kF8E8M0) {
    p.outputs = {cast_to_scale(p, saturate, schema_string(op, attributes, "round_mode"))};
  } else if (from != to && contains(kFloat8, to) && saturate) {
    const DType wide = contains(kFloats, from) ? from : is_float(from) ? DType::kF32 : DType::kF64;
    const int least = constant(p, wide, -info(to).largest), most = constant(p, wide, info(to).largest);
    const int x = wide == from ? 0 : emit(p, ScalarOp::kCast, wide, 0);
    p.outputs = {emit(p, ScalarOp::kCast, to, emit(p, ScalarOp::kClamp, wide, x, least, most))};
  } else {
    p.outputs = {emit(p, ScalarOp::kCast, to, 0)};
  }
  return p;
}

// Of integers in double: the bounds and the bias need not be whole. The result is truncated.
Program shrink_integers(const OpSchema& op, const Attributes& attributes, DType dtype) {
  const double lambd = schema_number(op, attributes, "lambd"), bias = schema_number(op, attributes, "bias");
  const std::array<ProgramInput, 1> x = {{{"x", dtype}}};
  return Program::parse(
      fmt::format(
          "t0 = cast_f64(x); cast_{}(select(t0 < ({:.17f}), t0 + ({:.17f}), select(t0 > ({:.17f}), t0 - ({:.17f}), "
          "t0 * 0)))",
          name(dtype), -lambd, bias, lambd, bias),
      x, DType::kF64);
}

Program is_infinite(bool negative, bool positive, DType dtype) {
  if (negative && positive) return Program::parse("isinf(x)", std::array<std::string_view, 1>{"x"}, dtype);
  if (!negative && !positive) return Program::parse("x < -inf", std::array<std::string_view, 1>{"x"}, dtype);
  return Program::parse(negative ? "x == -inf" : "x == inf", std::array<std::string_view, 1>{"x"}, dtype);
}

}  // namespace

Program program_of(const OpSchema& op, const Attributes& attributes, std::span<const DType> dtypes) {
  const std::string_view name = op.name;
  if (name == "Cast") return cast(op, attributes, dtypes, dtype_of_onnx(int(schema_integer(op, attributes, "to"))));
  if (name == "CastLike") return cast(op, attributes, dtypes, dtypes[1]);
  if (name == "Clip") return clip(dtypes);
  if (name == "Max") return fold(ScalarOp::kMax, dtypes, false);
  if (name == "Min") return fold(ScalarOp::kMin, dtypes, false);
  if (name == "Sum") return fold(ScalarOp::kAdd, dtypes, false);
  if (name == "Mean") return fold(ScalarOp::kAdd, dtypes, true);
  if (name == "Pow") return power(dtypes);
  if (name == "Where") {
    Program p = with_inputs(dtypes);
    p.outputs = {emit(p, ScalarOp::kSelect, dtypes[1], 0, 1, 2)};
    return p;
  }
  if (name == "IsInf")
    return is_infinite(schema_integer(op, attributes, "detect_negative") != 0,
                       schema_integer(op, attributes, "detect_positive") != 0, dtypes[0]);
  if (name == "Shrink" && is_integer(dtypes[0])) return shrink_integers(op, attributes, dtypes[0]);
  if (name == "Mod") {
    Program p = with_inputs(dtypes);
    p.outputs = {emit(p, schema_integer(op, attributes, "fmod") ? ScalarOp::kFmod : ScalarOp::kMod, dtypes[0], 0, 1)};
    return p;
  }
  if (name == "BitShift") {
    Program p = with_inputs(dtypes);
    const bool left = schema_string(op, attributes, "direction") == "LEFT";
    p.outputs = {emit(p, left ? ScalarOp::kShiftLeft : ScalarOp::kShiftRight, dtypes[0], 0, 1)};
    return p;
  }
  std::string_view expression;
  for (const Expression& e : op.expressions) {
    if (e.attribute.empty() || schema_string(op, attributes, e.attribute) == e.value) {
      expression = e.text;
      break;
    }
  }
  if (expression.empty()) fail(ErrorCode::kUnsupported, "unsupported: {} with {}", name, attributes.text());
  std::vector<std::string_view> names;
  for (size_t i = 0; i < dtypes.size(); ++i)
    names.push_back(i < size_t(op.inputs.size()) ? op.inputs[int(i)].name : kNames[i % kNames.size()]);
  return Program::parse(expression, names, dtypes[0], [&](std::string_view word) -> std::optional<double> {
    for (const AttributeSpec& spec : op.attributes) {
      if (spec.name == word) return double(schema_number(op, attributes, word));
    }
    return std::nullopt;
  });
}

Program program_of(const Graph& graph, const Node& node) {
  if (node.program) return *node.program;
  std::vector<DType> dtypes;
  for (ValueId v : node.inputs) dtypes.push_back(v == kNoValue ? DType::kNone : graph.value(v).dtype());
  return program_of(*node.op, node.attributes, dtypes);
}

}  // namespace ridgeline
