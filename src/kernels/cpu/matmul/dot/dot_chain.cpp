// Reads programs as chains of segments.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/matmul/dot/dot_epilogue.h"

namespace ridgeline::cpu {
namespace {

constexpr size_t kMostLinks = 4;

/// What a numbered operand of the program is.
struct Meaning {
  enum class Kind : uint8_t { kUnknown, kSums, kNumber, kResidual } kind = Kind::kUnknown;
  DotValue number;  // kNumber
  // kResidual: (input - before) * scale + bias
  int input = -1;
  DotValue before, scale, bias;
  bool fused = false;
};

class Reader {
 public:
  Reader(const Program& program, const std::vector<DotRider>& riders, bool integers)
      : p_(program),
        integers_(integers),
        at_(size_t(program.operands())),
        inside_(program.code.size(), false),
        integer_(integers) {
    for (int i = 1; i < int(p_.inputs.size()); ++i) {
      Meaning& m = at_[size_t(i)];
      const DType t = p_.inputs[size_t(i)].dtype;
      if (riders[size_t(i)] == DotRider::kScalar || riders[size_t(i)] == DotRider::kColumns) {
        m.kind = Meaning::Kind::kNumber;
        m.number = {i, 0, true};
      } else if (riders[size_t(i)] == DotRider::kRows && (t == DType::kF32 || t == DType::kBF16 || is_byte(t))) {
        m.kind = Meaning::Kind::kResidual;
        m.input = i;
      }
      scalar_.push_back(riders[size_t(i)] == DotRider::kScalar);
    }
    for (int i = 0; i < int(p_.constants.size()); ++i) {
      Meaning& m = at_[size_t(p_.first_constant() + i)];
      const ProgramConstant& c = p_.constants[size_t(i)];
      m.kind = Meaning::Kind::kNumber;
      m.number = {-1, is_float(c.dtype) ? c.f : double(c.i), true};
    }
    at_[0].kind = Meaning::Kind::kSums;
  }

  std::optional<DotChain> read() {
    if (p_.outputs.size() != 1) return std::nullopt;
    link();
    for (size_t i = 0; i < p_.code.size(); ++i) {
      const int to = p_.first_result() + int(i);
      const Instruction& in = p_.code[i];
      const bool reads = in.a == sums_ || in.b == sums_ || in.c == sums_;
      if (inside_[i] || (reads && function_from(int(i)))) continue;
      if (!step(in, to)) return std::nullopt;
    }
    const DType y = p_.output_dtype();
    if (p_.outputs[0] != sums_ || chain_.links.size() > kMostLinks || integer_) return std::nullopt;
    if ((stage_ >= kDivide && stage_ != kDone) || (stage_ == kDone) != is_byte(y)) return std::nullopt;
    if (y != DType::kF32 && y != DType::kBF16 && !is_byte(y)) return std::nullopt;
    if (y == DType::kBF16) spare_roundings();
    return chain_;
  }

 private:
  // What a link does, in this order; a step that would come too late begins another link.
  enum Stage : uint8_t {
    kNew,
    kBefore,
    kScale,
    kBias,
    kAdd,
    kClamp,
    kFunction,
    kDivide,
    kRound,
    kZero,
    kSaturate,
    kDone
  };

  void link() {
    chain_.links.emplace_back();
    stage_ = kNew;
  }
  DotChain::Link& last() { return chain_.links.back(); }
  /// The link for a step of this stage, up to kFunction; one that has passed the stage is closed. Null: in the midst of
  /// a quantization.
  DotChain::Link* at(Stage stage) {
    if (stage_ >= kDivide && stage_ < kDone) return nullptr;
    if (stage <= stage_) link();
    stage_ = stage;
    return &last();
  }

  /// y is rounded to bf16 as it is stored: the last rounding before is the same, and so is one before a clamp whose
  /// bounds are numbers of bf16.
  void spare_roundings() {
    DotSegment& s = last().fixed;
    const auto exact = [](float bound) { return bf16_to_f32(f32_to_bf16(bound)) == bound; };
    s.round_clamp = false;
    if (!exact(s.low) || !exact(s.high) || s.function != DotFunction::kNone) return;
    if (s.has_residual)
      s.round_residual = false;
    else
      s.round_bias = false;
  }

  Meaning& of(int operand) { return at_[size_t(operand)]; }
  bool is_sums(int operand) const { return operand == sums_; }
  bool is_number(int operand) { return of(operand).kind == Meaning::Kind::kNumber; }
  /// A number that is one for all.
  bool is_scalar(int operand) {
    if (!is_number(operand)) return false;
    const int input = of(operand).number.input;
    return input < 0 || scalar_[size_t(input) - 1];
  }
  std::optional<float> constant(int operand) {
    if (!is_number(operand) || of(operand).number.input >= 0) return std::nullopt;
    return float(of(operand).number.number);
  }

  bool becomes_sums(int to) {
    sums_ = to;
    at_[size_t(to)].kind = Meaning::Kind::kSums;
    return true;
  }

  /// A function of the sums, spelled in several instructions of which code[i] is the first: they are one step.
  bool function_from(int i) {
    if (integer_) return false;
    for (int to = p_.first_result() + i + 1; to < p_.operands(); ++to) {
      const ProgramFunction f = function_at(p_, to);
      if (f.op < 0 || f.from != sums_) continue;
      std::vector<bool> needed(size_t(p_.operands()), false);
      needed[size_t(to)] = true;
      for (int v = to; v > sums_ && v >= p_.first_result(); --v) {
        const Instruction& in = p_.code[size_t(v - p_.first_result())];
        if (!needed[size_t(v)]) continue;
        inside_[size_t(v - p_.first_result())] = true;
        for (const int16_t operand : {in.a, in.b, in.c})
          if (operand >= 0) needed[size_t(operand)] = true;
      }
      switch (f.op) {
        case kGelu:
          return function(DotFunction::kGelu) && becomes_sums(to);
        case kSiLU:
          return function(DotFunction::kSiLU) && becomes_sums(to);
        case kHardSwish:
          return function(DotFunction::kHardSwish) && becomes_sums(to);
        default:
          return false;
      }
    }
    return false;
  }

  bool function(DotFunction f) {
    DotChain::Link* l = at(kFunction);
    if (!l) return false;
    l->fixed.function = f;
    return true;
  }

  bool step(const Instruction& in, int to) {
    if (in.op == ScalarOp::kCast) return cast(in, to);
    if (integers_ && integer_ && in.dtype == DType::kI32) return add_integers(in, to);
    const bool bf16 = in.dtype == DType::kBF16;
    if (in.dtype != DType::kF32 && !bf16) return false;
    if (integer_ && (is_sums(in.a) || is_sums(in.b) || is_sums(in.c))) return false;
    const bool a = is_sums(in.a), b = in.b >= 0 && is_sums(in.b), c = in.c >= 0 && is_sums(in.c);
    if (!a && !b && !c) return !bf16 && on_residual(in, to);
    if (int(a) + int(b) + int(c) != 1) return false;
    if (!on_sums(in, a ? in.b : in.a)) return false;
    if (bf16) round();
    return becomes_sums(to);
  }

  /// To bf16; what was before it in the link comes no more.
  void round() {
    DotSegment& s = last().fixed;
    stage_ = std::max(stage_, kBias);
    (stage_ == kBias ? s.round_bias : stage_ == kAdd ? s.round_residual : s.round_clamp) = true;
    if (stage_ == kClamp) stage_ = kFunction;  // a function of what is rounded begins another link
  }

  bool add_integers(const Instruction& in, int to) {
    if (in.op != ScalarOp::kAdd || chain_.integer_bias.given) return false;
    if (is_sums(in.a) == is_sums(in.b)) return false;
    const int other = is_sums(in.a) ? in.b : in.a;
    if (!is_number(other) || p_.dtype_of(other) != DType::kI32) return false;
    chain_.integer_bias = of(other).number;
    return becomes_sums(to);
  }

  bool cast(const Instruction& in, int to) {
    const DType from = p_.dtype_of(in.a);
    if (!is_sums(in.a)) {  // numbers and residuals are read as f32 whatever they are
      if (in.dtype != DType::kF32 || from == DType::kF64) return false;
      at_[size_t(to)] = of(in.a);
      if (is_number(in.a) && of(in.a).number.input >= 0 &&
          !(is_byte(from) || from == DType::kF32 || from == DType::kBF16 || from == DType::kI32))
        return false;
      return true;
    }
    if (in.dtype == DType::kF32) {
      if (integer_ && !integers_) return false;
      integer_ = false;
      return becomes_sums(to);
    }
    if (integer_) return false;
    if (in.dtype == DType::kBF16) {
      if (stage_ >= kDivide) return false;
      round();
      return becomes_sums(to);
    }
    if (is_byte(in.dtype) && is_float(from) && (stage_ == kRound || stage_ == kZero || stage_ == kSaturate)) {
      DotSegment& s = last().fixed;
      s.quantizes = true;
      const int32_t least = in.dtype == DType::kU8 ? 0 : -128, most = in.dtype == DType::kU8 ? 255 : 127;
      s.least = std::max(s.least, least), s.most = std::min(s.most, most);
      if (s.least > s.most) return false;
      stage_ = kDone;
      return becomes_sums(to);
    }
    return false;
  }

  bool on_sums(const Instruction& in, int other) {
    switch (in.op) {
      case ScalarOp::kAdd:
        return add(in, other);
      case ScalarOp::kSub:
        if (!is_sums(in.a) || !is_number(other)) return false;
        if (DotChain::Link* l = at(kBefore)) return l->before = of(other).number, true;
        return false;
      case ScalarOp::kMul:
        return scale(in, other, false);
      case ScalarOp::kDiv:
        return is_sums(in.a) && scale(in, other, true);
      case ScalarOp::kFma:
        return fma(in);
      case ScalarOp::kSigmoid:
        return in.dtype == DType::kF32 && function(DotFunction::kSigmoid);
      case ScalarOp::kTanh:
        return in.dtype == DType::kF32 && function(DotFunction::kTanh);
      case ScalarOp::kRelu:
        return clamp(0, std::numeric_limits<float>::infinity());
      case ScalarOp::kMax:
        return constant(other) && clamp(*constant(other), std::numeric_limits<float>::infinity());
      case ScalarOp::kMin:
        return constant(other) && clamp(-std::numeric_limits<float>::infinity(), *constant(other));
      case ScalarOp::kClamp:
        return is_sums(in.a) && constant(in.b) && constant(in.c) && clamp(*constant(in.b), *constant(in.c));
      case ScalarOp::kRound:
        if (in.dtype != DType::kF32) return false;
        if (stage_ == kDone) link();
        if (stage_ > kDivide) return false;
        stage_ = kRound;
        last().fixed.least = -1024, last().fixed.most = 1024;
        return true;
      default:
        return false;
    }
  }

  /// A factor or a divisor: the last one before a rounding is the quantization's, which is known when that comes, so
  /// divisors are taken for it, and factors only after something else has been done to the scaled sums.
  bool scale(const Instruction& in, int other, bool divides) {
    if (divides || rounds_next(in)) {
      if (in.dtype != DType::kF32 || !is_scalar(other)) return false;
      if (stage_ == kDone) link();
      if (stage_ > kFunction) return false;
      stage_ = kDivide;
      last().fixed.divides = divides;
      last().step = of(other).number;
      return true;
    }
    if (!is_number(other)) return false;
    DotChain::Link* l = at(kScale);
    if (!l) return false;
    l->scale = of(other).number;
    return true;
  }
  /// Is the result of this instruction what a kRound takes?
  bool rounds_next(const Instruction& in) const {
    const int result = p_.first_result() + int(&in - p_.code.data());
    for (const Instruction& next : p_.code)
      if (next.op == ScalarOp::kRound && next.a == result) return true;
    return false;
  }

  bool add(const Instruction& in, int other) {
    if (is_number(other)) {
      if (stage_ == kRound) {  // the zero point
        if (!is_scalar(other) || in.dtype != DType::kF32) return false;
        const DotValue& zero = of(other).number;
        if (zero.input >= 0 ? !is_byte(p_.inputs[size_t(zero.input)].dtype)
                            : zero.number != std::nearbyint(zero.number) || std::fabs(zero.number) > 255)
          return false;
        last().zero = zero;
        stage_ = kZero;
        return true;
      }
      DotChain::Link* l = at(kBias);
      if (!l) return false;
      l->bias = of(other).number;
      return true;
    }
    if (of(other).kind != Meaning::Kind::kResidual) return false;
    DotChain::Link* l = at(kAdd);
    if (!l) return false;
    const Meaning& r = of(other);
    l->residual = r.input;
    l->fixed.has_residual = true;
    l->fixed.residual_dtype = p_.inputs[size_t(r.input)].dtype;
    l->fixed.r_affine = r.before.given || r.scale.given || r.bias.given;
    l->fixed.r_fused = r.fused;
    l->r_before = r.before, l->r_scale = r.scale, l->r_bias = r.bias;
    return true;
  }

  bool fma(const Instruction& in) {
    if (is_sums(in.c)) return false;  // a scaled residual: one rounding where the segment has two
    const int factor = is_sums(in.a) ? in.b : in.a;
    if (in.dtype != DType::kF32 || !is_number(factor) || !is_number(in.c)) return false;
    DotChain::Link* l = at(kScale);
    if (!l) return false;
    l->scale = of(factor).number;
    l->bias = of(in.c).number;
    l->fixed.fused = true;
    stage_ = kBias;
    return true;
  }

  bool clamp(float low, float high) {
    if (!(low <= high)) return false;
    if (stage_ == kRound || stage_ == kZero || stage_ == kSaturate) {  // of levels: whole numbers
      if (stage_ == kRound) return false;                              // before the zero point: not this form
      DotSegment& s = last().fixed;
      s.least = int32_t(std::max(double(s.least), std::ceil(std::max(double(low), -1024.0))));
      s.most = int32_t(std::min(double(s.most), std::floor(std::min(double(high), 1024.0))));
      stage_ = kSaturate;
      return s.least <= s.most;
    }
    DotChain::Link* l = at(kClamp);
    if (!l) return false;
    l->fixed.low = low, l->fixed.high = high;
    return true;
  }

  /// Instructions on what is added later.
  bool on_residual(const Instruction& in, int to) {
    Meaning& m = at_[size_t(to)];
    const auto residual = [&](int operand) { return of(operand).kind == Meaning::Kind::kResidual; };
    if (in.b < 0) return false;
    const bool first = residual(in.a);
    const int r = first ? in.a : in.b, other = first ? in.b : in.a;
    if (!residual(r) || !is_scalar(other)) return false;
    m = of(r);
    switch (in.op) {
      case ScalarOp::kSub:
        if (!first || m.before.given || m.scale.given || m.bias.given) return false;
        m.before = of(other).number;
        return true;
      case ScalarOp::kMul:
        if (m.scale.given || m.bias.given) return false;
        m.scale = of(other).number;
        return true;
      case ScalarOp::kAdd:
        if (m.bias.given) return false;
        m.bias = of(other).number;
        return true;
      case ScalarOp::kFma:
        if (m.scale.given || m.bias.given || !is_scalar(in.c)) return false;
        m.scale = of(other).number, m.bias = of(in.c).number, m.fused = true;
        return true;
      default:
        return false;
    }
  }

  const Program& p_;
  const bool integers_;
  std::vector<Meaning> at_;
  std::vector<bool> inside_;  // instructions of a function that is one step
  std::vector<bool> scalar_;
  DotChain chain_;
  Stage stage_ = kNew;
  int sums_ = 0;
  bool integer_;  // the sums, still
};

}  // namespace

std::optional<DotChain> read_dot_chain(const Program& program, const std::vector<DotRider>& riders, bool integers) {
  return Reader(program, riders, integers).read();
}

}  // namespace ridgeline::cpu
