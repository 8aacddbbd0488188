// Elementwise operators on bool and integers, comparisons, and those whose types do not all agree: Cast, Where, Pow,
// Clip. Those without an expression take their Program from the node's attributes and types (program_of).
#include "ops/catalogue.h"
#include "ops/common.h"

namespace ridgeline {

namespace {

constexpr StaticList<int, 16> kOrder = {1, 7, 9, 13};
constexpr StaticList<int, 16> kVariadic = {1, 6, 8, 12, 13};
constexpr StaticList<std::string_view, 24> kVariadicSamples = {"data0=f32[2,3,65] data1=f32[65] data2=f32[3,1]",
                                                               "data0=f32[7]", "data0=f32[0,3] data1=f32[1]"};

// The bounds are scalars; [1] is not the standard's form, but exporters write it.
void infer_clip(Infer& i) {
  for (int k = 1; k <= 2; ++k) {
    if (!i.has(k)) continue;
    for (const Dim& extent : i.shape(k)) {
      i.require(!extent.known() || extent.is(1),
                fmt::format("'{}' has shape {}; allowed: a scalar", i.op().inputs[k].name, text(i.shape(k))));
    }
  }
  infer_elementwise(i);
}

void infer_bit_shift(Infer& i) {
  const std::string direction = i.string("direction");
  i.require(direction == "LEFT" || direction == "RIGHT",
            fmt::format("direction = '{}'; allowed: LEFT, RIGHT", direction));
  infer_elementwise(i);
}

constexpr OpSchema with_infer(OpSchema s, void (*infer)(Infer&)) {
  s.infer = infer;
  return s;
}

constexpr InputSpec optional_scalar(std::string_view name, TypeSet types, std::string_view same_as) {
  InputSpec spec{name, types, same_as};
  spec.optional = true;
  return spec;
}

constexpr AttributeSpec required(std::string_view name, AttributeType type) { return {name, type, kRequired}; }

}  // namespace

constinit const OpSchema kAnd =
    binary("And", "and(x, y)", kBools, "x and y").versions({1, 7}).result(DType::kBool).ulps(0);
constinit const OpSchema kOr = binary("Or", "or(x, y)", kBools, "x or y").versions({1, 7}).result(DType::kBool).ulps(0);
constinit const OpSchema kXor =
    binary("Xor", "xor(x, y)", kBools, "x or y, not both").versions({1, 7}).result(DType::kBool).ulps(0);
constinit const OpSchema kNot = unary("Not", "not(x)", kBools, "not x").versions({1}).result(DType::kBool).ulps(0);

constinit const OpSchema kEqual =
    comparison("Equal", "x == y", kAll, "x = y; NaN equals nothing").versions({1, 7, 11, 13, 19});
constinit const OpSchema kLess = comparison("Less", "x < y", kNumbers, "x < y").versions(kOrder);
constinit const OpSchema kLessOrEqual = comparison("LessOrEqual", "x <= y", kNumbers, "x <= y").versions({12, 16});
constinit const OpSchema kGreater = comparison("Greater", "x > y", kNumbers, "x > y").versions(kOrder);
constinit const OpSchema kGreaterOrEqual =
    comparison("GreaterOrEqual", "x >= y", kNumbers, "x >= y").versions({12, 16});

constinit const OpSchema kBitwiseAnd =
    binary("BitwiseAnd", "bitand(x, y)", kIntegers, "bits in both").versions({18}).ulps(0);
constinit const OpSchema kBitwiseOr =
    binary("BitwiseOr", "bitor(x, y)", kIntegers, "bits in either").versions({18}).ulps(0);
constinit const OpSchema kBitwiseXor =
    binary("BitwiseXor", "bitxor(x, y)", kIntegers, "bits in one of both").versions({18}).ulps(0);
constinit const OpSchema kBitwiseNot =
    unary("BitwiseNot", "bitnot(x)", kIntegers, "every bit turned").versions({18}).ulps(0);
constinit const OpSchema kBitShift = with_infer(
    binary("BitShift", StaticList<Expression, 3>{}, kIntegers,
           "x shifted by y bits; zeros come in, to the right of a signed x its sign; y below 0 or beyond the "
           "width shifts every bit out")
        .attributes({required("direction", AttributeType::kString)})
        .versions({11, 28})
        .samples({"x=u32[2,3,65] y=u32[65] direction=LEFT", "x=u8[4,1] y=u8[3] direction=RIGHT",
                  "x=u64[] y=u64[0,2] direction=LEFT", "x=i32[2,3,65] y=i32[65] direction=RIGHT",
                  "x=i8[4,1] y=i8[3] direction=LEFT", "x=i64[7] y=i64[] direction=RIGHT"})
        .no_gradient(kNoGradientDiscrete)
        .ulps(0),
    infer_bit_shift);

constinit const OpSchema kIsNaN = unary("IsNaN", "isnan(x)", kFloats | kFloat8, "whether x is NaN")
                                      .versions({9, 13, 20})
                                      .result(DType::kBool)
                                      .ulps(0)
                                      .no_gradient(kNoGradientDiscrete);
constinit const OpSchema kIsInf =
    unary("IsInf", StaticList<Expression, 3>{}, kFloats | kFloat8, "whether x is infinite, of the signs asked for")
        .attributes({{"detect_negative", 1}, {"detect_positive", 1}})
        .versions({10, 20})
        .result(DType::kBool)
        .samples({"x=f32[2,3,65]", "x=f32[7] detect_negative=0", "x=f16[0,3] detect_positive=0"})
        .no_gradient(kNoGradientDiscrete)
        .ulps(0);

constinit const OpSchema kMod =
    binary("Mod", StaticList<Expression, 3>{}, kNumbers,
           "remainder of x / y with the sign of y, that of a zero too; fmod = 1: with the sign of x")
        .attributes({{"fmod", 0}})
        .versions({10, 13, 28})
        .samples({"x=i32[2,3,65] y=i32[65]", "x=f32[4,1] y=f32[3] fmod=1", "x=i64[] y=i64[0,2] fmod=1",
                  "x=f32[2,3,65] y=f32[65]", "x=f16[5,1] y=f16[3]"})
        .no_gradient("piecewise linear with jumps; no framework differentiates the standard's integer form")
        .ulps(1);

// The base and the exponent may be of different types; the result is of the base's.
constinit const OpSchema kPow =
    elementwise("Pow", {{"pow(x, y)"}}, "x to the y, in x's type; 0^0 = 1",
                {{"x", kFloats | type_bit(DType::kI32) | type_bit(DType::kI64)}, {"y", kNumbers}})
        .versions({1, 7, 12, 13, 15})
        .samples({"x=f32[2,3,65] y=f32[65]", "x=f32[4,1] y=i64[3]", "x=f32[0,2] y=f32[]"});

constinit const OpSchema kMax = variadic("Max", kNumbers, "the largest of the operands; NaN wins")
                                    .versions(kVariadic)
                                    .samples(kVariadicSamples)
                                    .ulps(0);
constinit const OpSchema kMin = variadic("Min", kNumbers, "the smallest of the operands; NaN wins")
                                    .versions(kVariadic)
                                    .samples(kVariadicSamples)
                                    .ulps(0);
constinit const OpSchema kSum =
    variadic("Sum", kNumbers, "the sum of the operands").versions({1, 6, 8, 13}).samples(kVariadicSamples).ulps(4);
constinit const OpSchema kMean =
    variadic("Mean", kFloats, "the mean of the operands").versions({1, 6, 8, 13}).samples(kVariadicSamples).ulps(4);

constinit const OpSchema kClip = with_infer(
    elementwise(
        "Clip", {}, "min(max(input, min), max); a bound that is absent does not bind; NaN stays NaN",
        {{"input", kNumbers}, optional_scalar("min", kNumbers, "input"), optional_scalar("max", kNumbers, "input")})
        .versions({1, 6, 11, 12, 13})
        .samples({"input=f32[2,3,65] min=f32[] max=f32[]", "input=f32[7] min=f32[]", "input=f16[0,3] max=f16[]",
                  "input=i32[5]"})
        .ulps(0),
    infer_clip);

constinit const OpSchema kWhere =
    elementwise("Where", {{"select(condition, x, y)"}}, "x where condition holds, else y; broadcast",
                {{"condition", kBools}, {"x", kAll}, {"y", kAll, "x"}})
        .versions({9, 16})
        .samples({"condition=bool[2,3,65] x=f32[65] y=f32[3,1]", "condition=bool[] x=i64[4] y=i64[2,1]",
                  "condition=bool[0,1] x=f16[3] y=f16[1]"})
        .ulps(0);

constinit const OpSchema kCast =
    elementwise(
        "Cast", {},
        "input in another type: floats round to even, float to integer truncates and saturates, nonzero is true",
        {{"input", kAny}})
        .attributes({required("to", AttributeType::kInt), {"saturate", 1}, {"round_mode", "up"}})
        .versions({1, 6, 9, 13, 19, 21, 23, 24, 25, 28})
        .samples({"input=f32[2,3,65] to=10", "input=f32[7] to=7", "input=i64[3,0] to=1", "input=bool[5] to=1",
                  "input=u8[2] to=9"})
        .ulps(0);

std::span<const OpSchema* const> elementwise_logic_ops() {
  static constexpr const OpSchema* kOps[] = {&kAnd,
                                             &kBitShift,
                                             &kBitwiseAnd,
                                             &kBitwiseNot,
                                             &kBitwiseOr,
                                             &kBitwiseXor,
                                             &kCast,
                                             &kClip,
                                             &kEqual,
                                             &kGreater,
                                             &kGreaterOrEqual,
                                             &kIsInf,
                                             &kIsNaN,
                                             &kLess,
                                             &kLessOrEqual,
                                             &kMax,
                                             &kMean,
                                             &kMin,
                                             &kMod,
                                             &kNot,
                                             &kOr,
                                             &kPow,
                                             &kSum,
                                             &kWhere,
                                             &kXor};
  return kOps;
}

}  // namespace ridgeline
