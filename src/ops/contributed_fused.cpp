// com.microsoft's operators that are one of the standard's with what follows or precedes it. Source: ONNX Runtime's
// ContribOperators.md.
#include <array>

#include "ops/catalogue.h"
#include "ops/contributed.h"

namespace ridgeline {

using namespace contributed;

namespace {

/// What may follow: an operator of the standard, and what its first two parameters are called there.
struct Activation {
  std::string_view name;
  std::array<std::string_view, 2> parameters{};
};
constexpr Activation kActivations[] = {{"Relu"},
                                       {"Tanh"},
                                       {"Sigmoid"},
                                       {"Softplus"},
                                       {"Softsign"},
                                       {"HardSwish"},
                                       {"LeakyRelu", {"alpha"}},
                                       {"ThresholdedRelu", {"alpha"}},
                                       {"Elu", {"alpha"}},
                                       {"HardSigmoid", {"alpha", "beta"}},
                                       {"Selu", {"alpha", "gamma"}},
                                       {"Clip", {"min", "max"}}};

const Activation* find_activation(std::string_view name) {
  for (const Activation& a : kActivations)
    if (a.name == name) return &a;
  return nullptr;
}

// Their values: import fills in the standard's defaults where a model gives none, and names FusedConv's list.
constexpr std::array<std::string_view, 2> kValues = {"activation_alpha", "activation_beta"};

void check_activation(const Infer& i) {
  const std::string name = i.string("activation");
  if (name.empty()) return;
  const Activation* activation = find_activation(name);
  if (!activation) {
    std::string allowed;
    for (const Activation& a : kActivations) allowed += (allowed.empty() ? "" : ", ") + std::string(a.name);
    i.reject(fmt::format("activation = '{}' is unsupported: allowed are {}", name, allowed));
  }
  for (size_t k = 0; k < kValues.size(); ++k)
    i.require(activation->parameters[k].empty() || i.attributes().has(kValues[k]),
              [&] { return fmt::format("activation = '{}' without {}", name, kValues[k]); });
}

V activated(Builder& b, V x) {
  const Activation* activation = find_activation(b.string("activation"));
  if (!activation) return x;
  std::vector<V> inputs = {x};
  Attributes attributes;
  for (size_t k = 0; k < kValues.size(); ++k) {
    if (activation->parameters[k].empty()) break;
    if (activation->name == "Clip")
      inputs.push_back(b.constant(b.number(kValues[k]), x));
    else
      attributes.set(activation->parameters[k], b.number(kValues[k]));
  }
  return b.op(activation->name, inputs, std::move(attributes));
}

// ---- FusedConv

void decompose_fused_conv(Builder& b) {
  Attributes attributes;
  copy_integers(b, {"dilations", "kernel_shape", "pads", "strides"}, attributes);
  attributes.set("group", b.integer("group"));
  attributes.set("auto_pad", b.string("auto_pad"));
  std::vector<V> operands = {b.input(0), b.input(1)};
  if (b.has(2)) operands.push_back(b.input(2));
  V y = b.op("Conv", operands, std::move(attributes));
  if (b.has(3)) y = y + b.input(3);
  b.result(activated(b, y));
}

// ---- FusedGemm

void decompose_fused_gemm(Builder& b) {
  std::vector<V> operands = {b.input(0), b.input(1)};
  if (b.has(2)) operands.push_back(b.input(2));
  V y = b.op("Gemm", operands,
             with({{"alpha", b.number("alpha")},
                   {"beta", b.number("beta")},
                   {"transA", b.integer("transA")},
                   {"transB", b.integer("transB")}}));
  b.result(activated(b, y));
}

constexpr AttributeSpec number_attribute(std::string_view name) { return {name, AttributeType::kFloat}; }
constexpr AttributeSpec integers_attribute(std::string_view name) { return {name, AttributeType::kInts}; }

}  // namespace

constinit const OpSchema kFusedConv = {
    .name = "FusedConv",
    .domain = "com.microsoft",
    .family = "conv",
    .kind = OpKind::kContraction,
    .doc = "activation(Conv(x, w, b) + z). Source: ONNX Runtime FusedConv-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"x", kFloats}, {"w", kFloats, "x"}, optional("b", kFloats, "x"), optional("z", kFloats, "x")},
    .outputs = {{"y"}},
    .attributes = {{"auto_pad", "NOTSET"},
                   integers_attribute("dilations"),
                   {"group", 1},
                   integers_attribute("kernel_shape"),
                   integers_attribute("pads"),
                   integers_attribute("strides"),
                   {"activation", ""},
                   number_attribute("activation_alpha"),
                   number_attribute("activation_beta")},
    .infer =
        [](Infer& i) {
          check_activation(i);
          find_op("Conv")->infer(i);
          if (!i.has(3)) return;
          const Shape& y = *i.results()[0].shape;
          const Shape& z = i.shape(3);
          bool fits = y.size() == z.size();
          for (size_t a = 0; fits && a < y.size(); ++a) fits = same(y[a], z[a]);
          i.require(fits, [&] { return fmt::format("input 'z' is {}, the result {}", describe(i, 3), text(y)); });
        },
    .cost = decomposed_cost,
    .decompose = {decompose_fused_conv},
    .no_gradient = "inference only in its standard; write it as Conv, Add and the activation",
    .samples =
        {"x=f32[1,3,8,9] w=f32[5,3,3,3] b=f32[5] activation=Relu pads=1,1,1,1",
         "x=f32[2,4,7,7] w=f32[6,2,3,3] b=f32[6] z=f32[2,6,4,4] group=2 strides=2,2 pads=1,1,1,1 "
         "activation=Relu",
         "x=f32[1,4,6,6] w=f32[3,4,1,1] activation=LeakyRelu activation_alpha=0.2",
         "x=f32[1,2,9] w=f32[3,2,3] activation=HardSigmoid activation_alpha=0.3 activation_beta=0.4 dilations=2",
         "x=f32[1,2,5,5] w=f32[2,2,3,3] activation=Clip activation_alpha=-0.5 activation_beta=0.5 auto_pad=SAME_UPPER",
         "x=f32[0,2,5,5] w=f32[2,2,3,3] activation=Tanh", "x=f16[1,2,5,5] w=f16[2,2,3,3] b=f16[2]"},
    .tolerance = Tolerance::contraction(),
};

constinit const OpSchema kFusedGemm = {
    .name = "FusedGemm",
    .domain = "com.microsoft",
    .family = "matmul",
    .kind = OpKind::kContraction,
    .doc = "activation(Gemm(a, b, c)). Source: ONNX Runtime FusedGemm-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"a", kFloats}, {"b", kFloats, "a"}, optional("c", kFloats, "a")},
    .outputs = {{"y"}},
    .attributes = {{"alpha", 1.0},
                   {"beta", 1.0},
                   {"transA", 0},
                   {"transB", 0},
                   {"activation", ""},
                   number_attribute("activation_alpha"),
                   number_attribute("activation_beta")},
    .infer =
        [](Infer& i) {
          check_activation(i);
          find_op("Gemm")->infer(i);
        },
    .cost = decomposed_cost,
    .decompose = {decompose_fused_gemm},
    .no_gradient = "inference only in its standard; write it as Gemm and the activation",
    .samples = {"a=f32[7,13] b=f32[13,5] c=f32[5] activation=Relu",
                "a=f32[13,7] b=f32[5,13] c=f32[7,1] transA=1 transB=1 alpha=0.5 beta=2.0 activation=LeakyRelu "
                "activation_alpha=0.1",
                "a=f32[1,64] b=f32[33,64] transB=1 activation=Selu activation_alpha=1.5 activation_beta=1.1",
                "a=f32[0,4] b=f32[4,3] c=f32[3] activation=Sigmoid", "a=f64[5,7] b=f64[7,3] c=f64[] activation=Tanh",
                "a=f16[9,33] b=f16[33,17]"},
    .tolerance = Tolerance::contraction(),
};

constinit const OpSchema kContributedGelu =
    unary("Gelu", "x * 0.5 * erfc(-x * 0.70710678118654752)", kFloats,
          "x * P(N(0,1) <= x), as the standard's Gelu-20; Hendrycks and Gimpel, 2016")
        .domain("com.microsoft")
        .versions({1});

constinit const OpSchema kFastGelu = {
    .name = "FastGelu",
    .domain = "com.microsoft",
    .family = "elementwise",
    .kind = OpKind::kOpaque,
    .doc = "Gelu by tanh of x + bias. Source: ONNX Runtime FastGelu-1; Hendrycks and Gimpel, 2016.",
    .since = 1,
    .versions = {1},
    .inputs = {{"x", kFloats}, optional("bias", kFloats, "x")},
    .outputs = {{"y"}},
    .infer =
        [](Infer& i) {
          if (i.has(1))
            i.require(i.rank(1) == 1 && i.rank(0) > 0 && same(i.dim(1, 0), i.shape(0).back()), [&] {
              return fmt::format("bias is {}: one number for each of the last axis of {} is wanted", describe(i, 1),
                                 describe(i, 0));
            });
          infer_same(i);
        },
    .cost = decomposed_cost,
    .decompose = {[](Builder& b) {
      V x = b.has(1) ? b.input(0) + b.input(1) : b.input(0);
      b.result(b.op("Gelu", {x}, with({{"approximate", std::string("tanh")}})));
    }},
    .samples = {"x=f32[2,3,65] bias=f32[65]", "x=f32[7]", "x=f32[]", "x=f32[0,3] bias=f32[3]",
                "x=f16[3,5] bias=f16[5]"},
    .tolerance = Tolerance::elementwise(),
};

std::span<const OpSchema* const> contributed_fused_ops() {
  static constexpr const OpSchema* kOps[] = {&kFusedConv, &kFusedGemm, &kContributedGelu, &kFastGelu};
  return kOps;
}

}  // namespace ridgeline
