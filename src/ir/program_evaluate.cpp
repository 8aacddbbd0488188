// The exact evaluator (the reference), and recognition of functions by their values.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "ir/program.h"

namespace ridgeline {
namespace {

double round_to(DType dtype, double value, bool round_f32) {
  switch (dtype) {
    case DType::kF32:
      return round_f32 ? double(float(value)) : value;
    case DType::kF64:
      return value;
    default: {
      uint64_t bits = 0;
      store_f64(dtype, &bits, 0, value);
      return load_f64(dtype, &bits, 0);
    }
  }
}

int64_t wrap_to(DType dtype, int64_t value) {
  uint64_t bits = 0;
  store_i64(dtype, &bits, 0, value);
  return load_i64(dtype, &bits, 0);
}

double nan_min(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b); }
double nan_max(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b); }

double float_op(ScalarOp op, double a, double b, double c) {
  switch (op) {
    case ScalarOp::kAdd:
      return a + b;
    case ScalarOp::kSub:
      return a - b;
    case ScalarOp::kMul:
      return a * b;
    case ScalarOp::kDiv:
      return a / b;
    case ScalarOp::kMod: {
      const double r = std::fmod(a, b);
      if (r == 0) return std::copysign(r, b);
      return (r < 0) != (b < 0) ? r + b : r;
    }
    case ScalarOp::kFmod:
      return std::fmod(a, b);
    case ScalarOp::kPow:
      return std::pow(a, b);
    case ScalarOp::kMin:
      return nan_min(a, b);
    case ScalarOp::kMax:
      return nan_max(a, b);
    case ScalarOp::kNeg:
      return -a;
    case ScalarOp::kAbs:
      return std::fabs(a);
    case ScalarOp::kSign:
      return std::isnan(a) ? a : double((a > 0) - (a < 0));
    case ScalarOp::kReciprocal:
      return 1 / a;
    case ScalarOp::kSqrt:
      return std::sqrt(a);
    case ScalarOp::kRsqrt:
      return 1 / std::sqrt(a);
    case ScalarOp::kSquare:
      return a * a;
    case ScalarOp::kExp:
      return std::exp(a);
    case ScalarOp::kLog:
      return std::log(a);
    case ScalarOp::kErf:
      return std::erf(a);
    case ScalarOp::kErfc:
      return std::erfc(a);
    case ScalarOp::kSin:
      return std::sin(a);
    case ScalarOp::kCos:
      return std::cos(a);
    case ScalarOp::kTan:
      return std::tan(a);
    case ScalarOp::kAsin:
      return std::asin(a);
    case ScalarOp::kAcos:
      return std::acos(a);
    case ScalarOp::kAtan:
      return std::atan(a);
    case ScalarOp::kSinh:
      return std::sinh(a);
    case ScalarOp::kCosh:
      return std::cosh(a);
    case ScalarOp::kTanh:
      return std::tanh(a);
    case ScalarOp::kAsinh:
      return std::asinh(a);
    case ScalarOp::kAcosh:
      return std::acosh(a);
    case ScalarOp::kAtanh:
      return std::atanh(a);
    case ScalarOp::kSigmoid:
      return a >= 0 ? 1 / (1 + std::exp(-a)) : std::exp(a) / (1 + std::exp(a));
    case ScalarOp::kSoftplus:
      return a > 0 ? a + std::log1p(std::exp(-a)) : std::log1p(std::exp(a));
    case ScalarOp::kRelu:
      return std::isnan(a) ? a : std::max(a, 0.0);
    case ScalarOp::kFloor:
      return std::floor(a);
    case ScalarOp::kCeil:
      return std::ceil(a);
    case ScalarOp::kRound:
      return std::nearbyint(a);
    case ScalarOp::kClamp:
      return nan_min(nan_max(a, b), c);
    case ScalarOp::kFma:
      return a * b + c;
    default:
      return std::nan("");
  }
}

int64_t integer_op(ScalarOp op, DType dtype, int64_t a, int64_t b, int64_t c) {
  const bool is_signed = info(dtype).is_signed;
  auto less = [&](int64_t x, int64_t y) { return is_signed ? x < y : uint64_t(x) < uint64_t(y); };
  auto wrapping = [](uint64_t v) { return int64_t(v); };
  switch (op) {
    case ScalarOp::kAdd:
      return wrapping(uint64_t(a) + uint64_t(b));
    case ScalarOp::kSub:
      return wrapping(uint64_t(a) - uint64_t(b));
    case ScalarOp::kMul:
      return wrapping(uint64_t(a) * uint64_t(b));
    case ScalarOp::kDiv:  // by zero gives 0: defined, where the standard leaves it open; the most negative by -1 wraps
      if (b == 0) return 0;
      if (!is_signed) return wrapping(uint64_t(a) / uint64_t(b));
      return b == -1 ? wrapping(0 - uint64_t(a)) : a / b;
    case ScalarOp::kMod:
      if (b == 0) return 0;
      if (!is_signed) return wrapping(uint64_t(a) % uint64_t(b));
      if (b == -1) return 0;  // the least number % -1 overflows
      {
        const int64_t r = a % b;
        return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
      }
    case ScalarOp::kFmod:
      if (b == 0 || (is_signed && b == -1)) return 0;
      return is_signed ? a % b : wrapping(uint64_t(a) % uint64_t(b));
    case ScalarOp::kPow: {
      if (is_signed && b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
      uint64_t result = 1, base = uint64_t(a);
      for (uint64_t e = uint64_t(b); e; e >>= 1, base *= base)
        if (e & 1) result *= base;
      return wrapping(result);
    }
    case ScalarOp::kMin:
      return less(a, b) ? a : b;
    case ScalarOp::kMax:
      return less(a, b) ? b : a;
    case ScalarOp::kNeg:
      return wrapping(0 - uint64_t(a));
    case ScalarOp::kAbs:
      return is_signed && a < 0 ? wrapping(0 - uint64_t(a)) : a;
    case ScalarOp::kSign:
      return is_signed ? (a > 0) - (a < 0) : a != 0;
    case ScalarOp::kSquare:
      return wrapping(uint64_t(a) * uint64_t(a));
    case ScalarOp::kReciprocal:
      return a == 0 ? 0 : 1 / a;
    case ScalarOp::kRelu:
      return is_signed && a < 0 ? 0 : a;
    case ScalarOp::kClamp: {
      const int64_t low = less(a, b) ? b : a;
      return less(low, c) ? low : c;
    }
    case ScalarOp::kFma:
      return wrapping(uint64_t(a) * uint64_t(b) + uint64_t(c));
    case ScalarOp::kFloor:
    case ScalarOp::kCeil:
    case ScalarOp::kRound:
      return a;
    case ScalarOp::kAnd:
    case ScalarOp::kBitAnd:
      return a & b;
    case ScalarOp::kOr:
    case ScalarOp::kBitOr:
      return a | b;
    case ScalarOp::kXor:
    case ScalarOp::kBitXor:
      return a ^ b;
    case ScalarOp::kNot:
      return !a;
    case ScalarOp::kBitNot:
      return ~a;
    case ScalarOp::kShiftLeft:
      return uint64_t(b) >= 64 ? 0 : wrapping(uint64_t(a) << b);
    case ScalarOp::kShiftRight:  // a signed one shifts in its sign
      return is_signed ? a >> std::min<uint64_t>(uint64_t(b), 63) : uint64_t(b) >= 64 ? 0 : wrapping(uint64_t(a) >> b);
    default:
      return 0;
  }
}

bool compare(ScalarOp op, DType dtype, const ScalarValue& x, const ScalarValue& y) {
  if (is_float(dtype)) {
    switch (op) {
      case ScalarOp::kEqual:
        return x.f == y.f;
      case ScalarOp::kLess:
        return x.f < y.f;
      case ScalarOp::kLessOrEqual:
        return x.f <= y.f;
      case ScalarOp::kGreater:
        return x.f > y.f;
      default:
        return x.f >= y.f;
    }
  }
  const bool less = info(dtype).is_signed || dtype == DType::kBool ? x.i < y.i : uint64_t(x.i) < uint64_t(y.i);
  switch (op) {
    case ScalarOp::kEqual:
      return x.i == y.i;
    case ScalarOp::kLess:
      return less;
    case ScalarOp::kLessOrEqual:
      return less || x.i == y.i;
    case ScalarOp::kGreater:
      return !less && x.i != y.i;
    default:
      return !less;
  }
}

ScalarValue cast(const ScalarValue& x, DType from, DType to) {
  ScalarValue y;
  if (to == DType::kBool) {
    y.i = is_float(from) ? x.f != 0 : x.i != 0;
  } else if (is_float(to)) {
    y.f = is_float(from) ? x.f : from == DType::kU64 ? double(uint64_t(x.i)) : double(x.i);
    if (to == DType::kF32) y.f = float(y.f);
  } else if (is_float(from)) {
    uint64_t bits = 0;
    store_f64(info(to).bits < 8 ? DType::kI64 : to, &bits, 0, x.f);
    // The standard leaves open what is out of range; its cases want the low bits for the types below a byte.
    y.i = info(to).bits < 8 ? wrap_to(to, int64_t(bits)) : load_i64(to, &bits, 0);
  } else {
    y.i = wrap_to(to, x.i);
  }
  return y;
}

}  // namespace

void evaluate(const Program& p, std::span<const ScalarValue> inputs, std::span<ScalarValue> outputs, bool round_f32) {
  thread_local std::vector<ScalarValue> values;
  values.resize(size_t(p.operands()));
  for (size_t i = 0; i < inputs.size(); ++i) values[i] = inputs[i];
  for (size_t i = 0; i < p.constants.size(); ++i)
    values[size_t(p.first_constant()) + i] = {p.constants[i].f, p.constants[i].i};
  for (size_t i = 0; i < p.code.size(); ++i) {
    const Instruction& in = p.code[i];
    const ScalarValue a = values[size_t(in.a)];
    const ScalarValue b = in.b >= 0 ? values[size_t(in.b)] : ScalarValue{};
    const ScalarValue c = in.c >= 0 ? values[size_t(in.c)] : ScalarValue{};
    const DType from = p.dtype_of(in.a);
    ScalarValue& y = values[size_t(p.first_result()) + i];
    y = {};
    if (in.op == ScalarOp::kCast)
      y = cast(a, from, in.dtype);
    else if (in.op == ScalarOp::kSelect)
      y = a.i ? b : c;
    else if (in.op >= ScalarOp::kEqual && in.op <= ScalarOp::kGreaterOrEqual)
      y.i = compare(in.op, from, a, b);
    else if (in.op == ScalarOp::kIsNan)
      y.i = is_float(from) && std::isnan(a.f);
    else if (in.op == ScalarOp::kIsInf)
      y.i = is_float(from) && std::isinf(a.f);
    else if (is_float(in.dtype))
      y.f = float_op(in.op, a.f, b.f, c.f);
    else if (in.op == ScalarOp::kPow && in.b >= 0 && is_float(p.dtype_of(in.b)))
      y = cast({std::pow(double(a.i), b.f), 0}, DType::kF64, in.dtype);
    else
      y.i = wrap_to(in.dtype, integer_op(in.op, in.dtype, a.i, b.i, c.i));
    if (is_float(in.dtype)) y.f = round_to(in.dtype, y.f, round_f32);
  }
  for (size_t i = 0; i < p.outputs.size(); ++i) outputs[i] = values[size_t(p.outputs[i])];
}

namespace {

// Sample points of same_function: one value an input for each.
class SamplePoints {
 public:
  SamplePoints(const Program& a, const Program& b) {
    for (const double far : {15.0, 25.0, 50.0, 90.0, 1e3, 1e5, 1e10, 1e20}) extra_.insert(extra_.end(), {far, -far});
    for (const Program* p : {&a, &b}) {
      for (const ProgramConstant& c : p->constants) {
        if (!is_float(c.dtype) || !std::isfinite(c.f)) continue;
        for (const double factor : {0.5, 0.999, 1.001, 2.0}) extra_.insert(extra_.end(), {c.f * factor, -c.f * factor});
      }
    }
  }
  int count() const { return kSweep + int(extra_.size()); }
  void at(int k, std::span<ScalarValue> x) const {
    for (size_t i = 0; i < x.size(); ++i) {
      // A sweep of [-12, 12] in irrational steps, one phase an input: points in every piece of clamps and roundings.
      const double phase =
          std::fmod(double(k) * 0.6180339887498949 + double(i) * 0.4142135623730951 * double(k + 1), 1.0);
      x[i] = {24 * phase - 12, int64_t(24 * phase - 12)};
      if (k % 4 == 3) x[i].f /= 8;
      // The others by turns one input at a time, so that two large ones do not cancel or drown a third.
      if (k >= kSweep && (x.size() == 1 || size_t(k) % x.size() == i)) x[i].f = extra_[size_t(k - kSweep)];
    }
  }

 private:
  static constexpr int kSweep = 96;
  std::vector<double> extra_;
};

bool same_value(double a, double b, double largest_input) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  if (a == b) return true;
  if (std::isinf(a) || std::isinf(b)) return false;
  // 2e-6: constants such as 1/sqrt(2) are written with six to nine digits by exporters.
  return std::fabs(a - b) <= 2e-6 * std::max({std::fabs(a), std::fabs(b), largest_input * 1e-1});
}

}  // namespace

bool same_function(const Program& a, const Program& b) {
  if (a.inputs.size() != b.inputs.size() || a.outputs.size() != b.outputs.size()) return false;
  for (size_t i = 0; i < a.inputs.size(); ++i)
    if (a.inputs[i].dtype != b.inputs[i].dtype) return false;
  for (size_t i = 0; i < a.outputs.size(); ++i)
    if (a.output_dtype(int(i)) != b.output_dtype(int(i))) return false;
  const SamplePoints points(a, b);
  std::vector<ScalarValue> x(a.inputs.size()), ya(a.outputs.size()), yb(a.outputs.size());
  for (int k = 0; k < points.count(); ++k) {
    points.at(k, x);
    evaluate(a, x, ya);
    evaluate(b, x, yb);
    double largest = 1e-29;
    for (const ScalarValue& v : x) largest = std::max(largest, std::fabs(v.f));
    for (size_t o = 0; o < ya.size(); ++o) {
      const bool same = is_float(a.output_dtype(int(o))) ? same_value(ya[o].f, yb[o].f, largest) : ya[o].i == yb[o].i;
      if (!same) return false;
    }
  }
  return true;
}

std::string known_function(const Program& program) {
  struct Known {
    const char* name;
    const char* expression;
  };
  static constexpr std::array<Known, 14> kKnown = {{
      {"Relu", "relu(x)"},
      {"Gelu", "x * 0.5 * erfc(-x * 0.70710678118654752)"},
      {"GeluTanh", "x * 0.5 * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))"},
      {"HardSwish", "x * clamp(x / 6 + 0.5, 0, 1)"},
      {"HardSigmoid", "clamp(x * 0.2 + 0.5, 0, 1)"},
      {"HardSigmoid6", "clamp(x / 6 + 0.5, 0, 1)"},
      {"SiLU", "x * sigmoid(x)"},
      {"QuickGelu", "x * sigmoid(1.702 * x)"},
      {"Sigmoid", "sigmoid(x)"},
      {"Tanh", "tanh(x)"},
      {"Softplus", "softplus(x)"},
      {"Mish", "x * tanh(softplus(x))"},
      {"Relu6", "clamp(x, 0, 6)"},
      {"Exp", "exp(x)"},
  }};
  if (program.inputs.size() != 1 || program.outputs.size() != 1 || program.code.empty() ||
      !is_float(program.output_dtype()))
    return "";
  static constexpr std::array<std::string_view, 1> kNames = {"x"};
  for (const Known& known : kKnown) {
    if (same_function(program, Program::parse(known.expression, kNames, program.inputs[0].dtype))) return known.name;
  }
  return "";
}

}  // namespace ridgeline
