// Program: a short straight-line list of scalar instructions over broadcast operands; the single form of elementwise
// work: an operator, a fused chain, the epilogue of a contraction, norm or reduction.
//
// Operands are numbered: inputs first, then constants, then the results of the instructions in order. Each instruction
// has a dtype, in which its result is rounded: integers are exact and wrap, bool is 0 or 1, f16 and bf16 are computed
// in f32 and rounded, f32 is computed in f32 by kernels and in double by the reference.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ridgeline/dtype.h"

namespace ridgeline {

enum class ScalarOp : uint8_t {
  kCast,  // convert to the instruction's dtype (floats round to even, float to integer truncates and saturates)
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMod,
  kFmod,
  kPow,
  kMin,
  kMax,  // integer division truncates; kMod has the divisor's sign
  kNeg,
  kAbs,
  kSign,
  kReciprocal,
  kSqrt,
  kRsqrt,
  kSquare,
  kExp,
  kLog,
  kErf,
  kErfc,
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kTanh,
  kAsinh,
  kAcosh,
  kAtanh,
  kSigmoid,
  kSoftplus,
  kRelu,
  kFloor,
  kCeil,
  kRound,   // kRound: half to even
  kClamp,   // min(max(a, b), c): NaN in a stays NaN
  kFma,     // a * b + c
  kSelect,  // a ? b : c
  kEqual,
  kLess,
  kLessOrEqual,
  kGreater,
  kGreaterOrEqual,  // result bool
  kAnd,
  kOr,
  kXor,
  kNot,
  kIsNan,
  kIsInf,  // result bool
  kBitAnd,
  kBitOr,
  kBitXor,
  kBitNot,
  kShiftLeft,
  kShiftRight,
};
inline constexpr int kScalarOpCount = int(ScalarOp::kShiftRight) + 1;

struct ScalarOpInfo {
  std::string_view name;  // as the expression language writes it: "sigmoid", "clamp", "+"
  int arity;
  int flops;     // counted by cost: 1 for everything but moves and casts; exp and the like count 1 here and are timed
                 // apart
  bool special;  // exp, erf, division and the like: their measured throughput sets the floor, not the FMA peak
};
const ScalarOpInfo& info(ScalarOp op);

struct Instruction {
  ScalarOp op;
  DType dtype;
  int16_t a = -1, b = -1, c = -1;  // operand numbers
  bool operator==(const Instruction&) const = default;
};

struct ProgramInput {
  std::string name;
  DType dtype;
  bool operator==(const ProgramInput&) const = default;
};

struct ProgramConstant {
  DType dtype;
  double f = 0;   // floats
  int64_t i = 0;  // integers and bool
  /// By bits: NaN equals itself (constants are looked up), and -0 is not 0.
  bool operator==(const ProgramConstant& other) const {
    return dtype == other.dtype && i == other.i && std::bit_cast<int64_t>(f) == std::bit_cast<int64_t>(other.f);
  }
};

class Program {
 public:
  static constexpr int kMostInstructions = 64;

  std::vector<ProgramInput> inputs;
  std::vector<ProgramConstant> constants;
  std::vector<Instruction> code;
  std::vector<int> outputs;  // operand numbers

  int first_constant() const { return int(inputs.size()); }
  int first_result() const { return int(inputs.size() + constants.size()); }
  int operands() const { return first_result() + int(code.size()); }
  DType dtype_of(int operand) const;
  DType output_dtype(int output = 0) const { return dtype_of(outputs[size_t(output)]); }

  /// Builders. Equal constants and equal instructions share one number. The order of calls matters only in that inputs
  /// come first, then everything else: numbers of constants and results are renumbered as constants are added.
  int add_input(std::string name, DType dtype);

  /// An expression: names of inputs, numbers, + - * /, unary -, comparisons, calls of ScalarOps by name (min, max,
  /// clamp, select, pow, sqrt, ...) and `cast_f32(x)`. Names that are no input are asked of `constant` (attributes).
  /// `t0 = ...;` before it names what is used more than once. All inputs have `dtype`; a result has the type of its
  /// operands, a number that of what it meets, a comparison is bool. Throws Error{kUsage} with the place of the fault.
  static Program parse(std::string_view expression, std::span<const std::string_view> input_names, DType dtype,
                       const std::function<std::optional<double>(std::string_view)>& constant = nullptr);
  /// The same over inputs of different types; `dtype` is the type of numbers that meet none.
  static Program parse(std::string_view expression, std::span<const ProgramInput> inputs, DType dtype);
  /// The expression of each output, nested; a result used twice is written as `t0 = ...; `.
  std::string text() const;

  /// Floating point operations an element; special ones (exp, erf, division, ...) apart.
  int flops() const;
  int special_flops() const;
  int count(ScalarOp op) const;

  /// The program that feeds output `output` of `first` into input `input` of `second`; the other inputs of both are
  /// joined in order (first's, then second's without `input`). nullopt if it would exceed kMostInstructions.
  /// `keep_outputs`: first's outputs remain outputs, after second's.
  static std::optional<Program> compose(const Program& first, int output, const Program& second, int input,
                                        bool keep_outputs = false);
  /// Makes inputs `a` and `b` one (same tensor): b is dropped.
  void merge_inputs(int a, int b);
  /// Replaces an input by a constant (scalar operands known at compile time).
  void bind_input(int input, ProgramConstant value);
  /// Removes dead code, folds constants, rewrites to the few rich instructions that kernels run fast: max(x, 0) ->
  /// relu, min(max(x, a), b) -> clamp, a * x + b -> fma, x * x -> square. Changes rounding by at most the fused
  /// multiply-add.
  void simplify();

  bool operator==(const Program&) const = default;
};

/// The exact evaluator, the reference: floats in double, rounded to each instruction's dtype only where that is f16,
/// bf16 or f8; integers in 64 bits, wrapped to the dtype. `round_f32` rounds f32 results too.
struct ScalarValue {
  double f = 0;
  int64_t i = 0;
};
void evaluate(const Program& program, std::span<const ScalarValue> inputs, std::span<ScalarValue> outputs,
              bool round_f32 = false);

/// Recognition: two programs of floats mean the same if they agree, within 2e-6 of the largest term, at sample points
/// (probabilistic identity testing: exact spelling, association and order do not matter). The points sweep [-12, 12],
/// go out to 1e20 on both sides, and stand on both sides of each constant of either program, where its pieces meet.
/// What is recognised may run as the known function (GELU, SiLU), so a point too few is a wrong result.
bool same_function(const Program& a, const Program& b);
/// "Gelu", "HardSwish", "Relu", "SiLU", ... for a one-input float program that is such a function; empty if none.
std::string known_function(const Program& program);

}  // namespace ridgeline
