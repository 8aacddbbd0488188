// Elementwise arithmetic: each line is the operator's meaning, its reference, its kernel, its cost and its gradient.
// Source: the ONNX operator standard, ai.onnx; expressions in the language of Program::parse.
#include "ops/catalogue.h"
#include "ops/contributed.h"

namespace ridgeline {

namespace {
constexpr TypeSet kSignedNumbers = kFloats | kSigned;
constexpr StaticList<int, 16> kSinceOne = {1, 6, 13};
constexpr StaticList<int, 16> kTrigonometric = {7, 22};
constexpr StaticList<int, 16> kHyperbolic = {9, 22};
constexpr StaticList<int, 16> kArithmetic = {1, 6, 7, 13, 14};

// Of two operands that do not broadcast.
void infer_equal_shapes(Infer& i) {
  bool equal = i.rank(0) == i.rank(1);
  for (int a = 0; equal && a < i.rank(0); ++a)
    equal = !i.dim(0, a).known() || !i.dim(1, a).known() || i.dim(0, a) == i.dim(1, a);
  i.require(equal, [&] {
    return fmt::format("'{}' is {} and '{}' {}; allowed: equal shapes", i.op().inputs[0].name, text(i.shape(0)),
                       i.op().inputs[1].name, text(i.shape(1)));
  });
  infer_elementwise(i);
}
}  // namespace

constinit const OpSchema kAbs = unary("Abs", "abs(x)", kNumbers, "|x|").versions(kSinceOne).ulps(0);
constinit const OpSchema kNeg = unary("Neg", "-x", kSignedNumbers, "-x").versions(kSinceOne).ulps(0);
constinit const OpSchema kSign = unary("Sign", "sign(x)", kNumbers, "-1, 0 or 1 with the sign of x; NaN stays NaN")
                                     .versions({9, 13})
                                     .ulps(0)
                                     .no_gradient(kNoGradientZero);
constinit const OpSchema kReciprocal =
    unary("Reciprocal", "reciprocal(x)", kFloats, "1 / x").versions(kSinceOne).ulps(1);
constinit const OpSchema kSqrt =
    unary("Sqrt", "sqrt(x)", kFloats, "square root; NaN for x < 0").versions(kSinceOne).ulps(1);
constinit const OpSchema kExp = unary("Exp", "exp(x)", kFloats, "e to the x").versions(kSinceOne);
constinit const OpSchema kLog = unary("Log", "log(x)", kFloats, "natural logarithm").versions(kSinceOne);
constinit const OpSchema kErf =
    unary("Erf", "erf(x)", kFloats, "the error function, 2 / sqrt(pi) * integral of exp(-t^2) from 0 to x")
        .versions({9, 13});
constinit const OpSchema kFloor = unary("Floor", "floor(x)", kFloats, "the largest integer not above x")
                                      .versions(kSinceOne)
                                      .ulps(0)
                                      .no_gradient(kNoGradientZero);
constinit const OpSchema kCeil = unary("Ceil", "ceil(x)", kFloats, "the smallest integer not below x")
                                     .versions(kSinceOne)
                                     .ulps(0)
                                     .no_gradient(kNoGradientZero);
constinit const OpSchema kRound = unary("Round", "round(x)", kFloats, "to the nearest integer, halves to the even one")
                                      .versions({11, 22})
                                      .ulps(0)
                                      .no_gradient(kNoGradientZero);

constinit const OpSchema kSin = unary("Sin", "sin(x)", kFloats, "sine of x in radians").versions(kTrigonometric);
constinit const OpSchema kCos = unary("Cos", "cos(x)", kFloats, "cosine of x in radians").versions(kTrigonometric);
constinit const OpSchema kTan = unary("Tan", "tan(x)", kFloats, "tangent of x in radians").versions(kTrigonometric);
constinit const OpSchema kAsin = unary("Asin", "asin(x)", kFloats, "inverse sine, in radians").versions(kTrigonometric);
constinit const OpSchema kAcos =
    unary("Acos", "acos(x)", kFloats, "inverse cosine, in radians").versions(kTrigonometric);
constinit const OpSchema kAtan =
    unary("Atan", "atan(x)", kFloats, "inverse tangent, in radians").versions(kTrigonometric);
constinit const OpSchema kSinh = unary("Sinh", "sinh(x)", kFloats, "hyperbolic sine").versions(kHyperbolic);
constinit const OpSchema kCosh = unary("Cosh", "cosh(x)", kFloats, "hyperbolic cosine").versions(kHyperbolic);
constinit const OpSchema kTanh = unary("Tanh", "tanh(x)", kFloats, "hyperbolic tangent").versions(kSinceOne);
constinit const OpSchema kAsinh = unary("Asinh", "asinh(x)", kFloats, "inverse hyperbolic sine").versions(kHyperbolic);
constinit const OpSchema kAcosh =
    unary("Acosh", "acosh(x)", kFloats, "inverse hyperbolic cosine; NaN for x < 1").versions(kHyperbolic);
constinit const OpSchema kAtanh =
    unary("Atanh", "atanh(x)", kFloats, "inverse hyperbolic tangent").versions(kHyperbolic);

constinit const OpSchema kAdd =
    binary("Add", "x + y", kNumbers, "x + y, broadcast; integers wrap").versions(kArithmetic).ulps(1);
constinit const OpSchema kSub =
    binary("Sub", "x - y", kNumbers, "x - y, broadcast; integers wrap").versions(kArithmetic).ulps(1);
constinit const OpSchema kMul =
    binary("Mul", "x * y", kNumbers, "x * y, broadcast; integers wrap").versions(kArithmetic).ulps(1);
constinit const OpSchema kDiv =
    binary("Div", "x / y", kNumbers, "x / y, broadcast; integer division truncates").versions(kArithmetic).ulps(1);

// ---- activations
constinit const OpSchema kRelu =
    unary("Relu", "relu(x)", kSignedNumbers, "max(x, 0); NaN stays NaN").versions({1, 6, 13, 14}).ulps(0);
constinit const OpSchema kSigmoid = unary("Sigmoid", "sigmoid(x)", kFloats, "1 / (1 + exp(-x))").versions(kSinceOne);
constinit const OpSchema kSoftplus = unary("Softplus", "softplus(x)", kFloats, "log(1 + exp(x))").versions({1, 22});
constinit const OpSchema kSoftsign = unary("Softsign", "x / (1 + abs(x))", kFloats, "x / (1 + |x|)").versions({1, 22});
constinit const OpSchema kMish =
    unary("Mish", "x * tanh(softplus(x))", kFloats, "x * tanh(softplus(x)); Misra, 2019").versions({18, 22});
constinit const OpSchema kHardSwish =
    unary("HardSwish", "x * clamp(x / 6 + 0.5, 0, 1)", kFloats, "x * clamp(x / 6 + 1 / 2, 0, 1); Howard et al., 2019")
        .versions({14, 22});
constinit const OpSchema kHardSigmoid =
    unary("HardSigmoid", "clamp(alpha * x + beta, 0, 1)", kFloats, "clamp(alpha * x + beta, 0, 1)")
        .attributes({{"alpha", 0.2}, {"beta", 0.5}})
        .versions({1, 6, 22})
        .samples({"x=f32[2,3,65]", "x=f16[7] alpha=0.5 beta=0.6", "x=f32[0,3]"});
constinit const OpSchema kElu = unary("Elu", "select(x < 0, alpha * (exp(x) - 1), x)", kFloats,
                                      "x, or alpha * (exp(x) - 1) for x < 0; Clevert et al., 2015")
                                    .attributes({{"alpha", 1.0}})
                                    .versions({1, 6, 22})
                                    .samples({"x=f32[2,3,65]", "x=f16[7] alpha=2", "x=f32[0,3]"});
constinit const OpSchema kCelu = unary("Celu", "max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0)", kFloats,
                                       "x, or alpha * (exp(x / alpha) - 1) for x < 0; Barron, 2017")
                                     .attributes({{"alpha", 1.0}})
                                     .versions({12})
                                     .samples({"x=f32[2,3,65]", "x=f32[7] alpha=2", "x=f32[0,3]"});
constinit const OpSchema kSelu =
    unary("Selu", "gamma * select(x > 0, x, alpha * exp(x) - alpha)", kFloats,
          "gamma * x, or gamma * alpha * (exp(x) - 1) for x <= 0; Klambauer et al., 2017")
        .attributes({{"alpha", 1.67326319217681884765625}, {"gamma", 1.05070102214813232421875}})
        .versions({1, 6, 22})
        .samples({"x=f32[2,3,65]", "x=f32[7] alpha=2 gamma=3", "x=f32[0,3]"});
constinit const OpSchema kLeakyRelu =
    unary("LeakyRelu", "select(x < 0, alpha * x, x)", kFloats, "x, or alpha * x for x < 0; Maas et al., 2013")
        .attributes({{"alpha", 0.01}})
        .versions({1, 6, 16})
        .samples({"x=f32[2,3,65]", "x=f16[7] alpha=0.5", "x=f32[0,3]"})
        .ulps(1);
constinit const OpSchema kThresholdedRelu =
    unary("ThresholdedRelu", "select(x > alpha, x, 0)", kFloats, "x where x > alpha, else 0")
        .attributes({{"alpha", 1.0}})
        .versions({10, 22})
        .samples({"x=f32[2,3,65]", "x=f16[7] alpha=0.25", "x=f32[0,3]"})
        .ulps(0);
// Unsigned types are left out: -lambd has no value there.
constinit const OpSchema kShrink = unary("Shrink", "select(x < -lambd, x + bias, select(x > lambd, x - bias, 0))",
                                         kNumbers, "x + bias for x < -lambd, x - bias for x > lambd, else 0")
                                       .attributes({{"lambd", 0.5}, {"bias", 0.0}})
                                       .versions({9})
                                       .samples({"x=f32[2,3,65]", "x=f16[7] lambd=1 bias=1.5", "x=f32[0,3]",
                                                 "x=u8[9] lambd=1.5 bias=1.5", "x=i32[3,5]"})
                                       .ulps(1);
constinit const OpSchema kGelu =
    unary("Gelu",
          {{"x * 0.5 * erfc(-x * 0.70710678118654752)", "approximate", "none"},
           {"x * 0.5 * (1 + tanh(0.79788456080286536 * (x + 0.044715 * x * x * x)))", "approximate", "tanh"}},
          kFloats, "x * P(N(0,1) <= x), exact or by tanh; Hendrycks and Gimpel, 2016")
        .attributes({{"approximate", "none"}})
        .versions({20})
        .samples({"x=f32[2,3,65]", "x=f16[7] approximate=tanh", "x=f32[0,3]"});
constinit const OpSchema kSwish =
    unary("Swish", "x * sigmoid(alpha * x)", kFloats, "x * sigmoid(alpha * x); Ramachandran et al., 2017")
        .attributes({{"alpha", 1.0}})
        .versions({24})
        .samples({"x=f32[2,3,65]", "x=f16[7] alpha=1.5", "x=f32[0,3]"});
constinit const OpSchema kSwiGLU = [] {
  OpSchema s = binary("SwiGLU", "x * sigmoid(alpha * x) * y", kFloats,
                      "Swish(x) * y of equal shapes; Shazeer, 2020. Source: ONNX SwiGLU-28")
                   .attributes({{"alpha", 1.0}})
                   .versions({28})
                   .samples({"x=f32[2,3,65] y=f32[2,3,65]", "x=f16[7] y=f16[7] alpha=1.5", "x=f32[0,3] y=f32[0,3]",
                             "x=f32[] y=f32[]"});
  s.infer = infer_equal_shapes;
  return s;
}();
constinit const OpSchema kSiLU =
    unary("SiLU", "x * sigmoid(x)", kFloats, "x * sigmoid(x); Elfwing et al., 2017").domain("ridgeline");
constinit const OpSchema kQuickGelu =
    unary("QuickGelu", "x * sigmoid(alpha * x)", kFloats, "x * sigmoid(alpha * x); alpha = 1.702 approximates Gelu")
        .domain("com.microsoft")
        .attributes({{"alpha", 1.702}})
        .versions({1})
        .samples({"x=f32[2,3,65]", "x=f16[7] alpha=1.5", "x=f32[0,3]"});

namespace {

// The second operand is broadcast to the first, never the first to the second.
void infer_onto_first(Infer& i) {
  i.require(contributed::broadcasts_onto(i.shape(1), i.shape(0)),
            fmt::format("'{}' {} must broadcast to {} of '{}'; allowed: each extent of it 1 or that of '{}'",
                        i.op().inputs[1].name, text(i.shape(1)), text(i.shape(0)), i.op().inputs[0].name,
                        i.op().inputs[0].name));
  i.same_as(0, 0);
}

constexpr OpSchema prelu() {
  OpSchema s = elementwise("PRelu", {{"select(x < 0, slope * x, x)"}},
                           "x, or slope * x for x < 0; slope broadcasts to x; He et al., 2015",
                           {{"x", kNumbers}, {"slope", kNumbers, "x"}})
                   .versions({1, 6, 7, 9, 16})
                   .samples({"x=f32[2,3,65] slope=f32[65]", "x=f32[4,3,5] slope=f32[3,1]", "x=f32[0,2] slope=f32[1]",
                             "x=bf16[7] slope=bf16[]"})
                   .ulps(1);
  s.infer = infer_onto_first;
  return s;
}

constexpr OpSchema bias_gelu() {
  OpSchema s =
      elementwise("BiasGelu", {{"(a + b) * 0.5 * erfc(-(a + b) * 0.70710678118654752)"}},
                  "Gelu(a + b); b, the bias, broadcasts to a", {{"a", kFloats}, {"b", kFloats, "a"}})
          .domain("com.microsoft")
          .versions({1})
          .samples({"a=f32[2,3,65] b=f32[65]", "a=f32[7] b=f32[7]", "a=f32[0,2] b=f32[2]", "a=f16[3,5] b=f16[5]"});
  s.infer = infer_onto_first;
  return s;
}

}  // namespace

constinit const OpSchema kPRelu = prelu();
constinit const OpSchema kBiasGelu = bias_gelu();

std::span<const OpSchema* const> elementwise_ops() {
  static constexpr const OpSchema* kOps[] = {
      &kAbs,       &kBiasGelu,       &kAcos,      &kAcosh,     &kAdd,  &kAsin,   &kAsinh,  &kAtan,    &kAtanh,
      &kCeil,      &kCelu,           &kCos,       &kCosh,      &kDiv,  &kElu,    &kErf,    &kExp,     &kFloor,
      &kGelu,      &kHardSigmoid,    &kHardSwish, &kLeakyRelu, &kLog,  &kMish,   &kMul,    &kNeg,     &kPRelu,
      &kQuickGelu, &kReciprocal,     &kRelu,      &kRound,     &kSelu, &kShrink, &kSiLU,   &kSigmoid, &kSign,
      &kSin,       &kSinh,           &kSoftplus,  &kSoftsign,  &kSqrt, &kSub,    &kSwiGLU, &kSwish,   &kTan,
      &kTanh,      &kThresholdedRelu};
  return kOps;
}

}  // namespace ridgeline
