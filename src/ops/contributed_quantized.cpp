// com.microsoft's operators over quantized tensors: dequantizations, the operator in f32 and a quantization, which the
// passes over quantized graphs make into integer kernels and tables. Source: ONNX Runtime's ContribOperators.md.
#include "ops/catalogue.h"
#include "ops/contributed.h"

namespace ridgeline {

using namespace contributed;

namespace {

constexpr TypeSet kBytes = type_bit(DType::kI8) | type_bit(DType::kU8);
constexpr TypeSet kF32Only = type_bit(DType::kF32);

void check_single(const Infer& i, int input) {
  if (!i.has(input)) return;
  const Dim count = product(i.shape(input));
  i.require(!count.known() || count.is(1), [&] {
    return fmt::format("input '{}' is {}: one number is wanted", i.op().inputs[input].name, describe(i, input));
  });
}

/// Without a shape that DequantizeLinear would take for a scale an axis.
V single(Builder& b, V x) { return b.rank(x) == 0 ? x : b.reshape(x, {}); }

/// Of inputs `first` (bytes), its scale and its zero point, which may be absent.
V dequantized(Builder& b, int first) {
  std::vector<V> operands = {b.input(first), single(b, b.input(first + 1))};
  if (b.has(first + 2)) operands.push_back(single(b, b.input(first + 2)));
  return b.op("DequantizeLinear", operands);
}

/// To bytes of `dtype` by the scale and the zero point in `scale` and `zero`.
V quantized(Builder& b, V x, int scale, int zero, DType dtype) {
  V point = b.has(zero) ? single(b, b.input(zero)) : V{&b, b.graph().add_constant({}, Tensor::scalar_of(dtype, 0))};
  return b.op("QuantizeLinear", {x, single(b, b.input(scale)), point});
}

void infer_quantized_pair(Infer& i) {
  for (int input : {1, 2, 4, 5, 6, 7}) check_single(i, input);
  i.output(0, i.dtype(0), i.broadcast_shape({0, 3}));
}

template <bool kProduct>
void decompose_pair(Builder& b) {
  V x = dequantized(b, 0), y = dequantized(b, 3);
  b.result(quantized(b, kProduct ? x * y : x + y, 6, 7, b.dtype(b.input(0))));
}

constexpr StaticList<InputSpec, 16> kPairInputs = {{"a", kBytes},
                                                   {"a_scale", kF32Only},
                                                   optional("a_zero_point", kBytes, "a"),
                                                   {"b", kBytes, "a"},
                                                   {"b_scale", kF32Only},
                                                   optional("b_zero_point", kBytes, "a"),
                                                   {"c_scale", kF32Only},
                                                   optional("c_zero_point", kBytes, "a")};

constexpr OpSchema quantized_pair(std::string_view name, std::string_view doc, void (*decompose)(Builder&)) {
  OpSchema s;
  s.name = name;
  s.domain = "com.microsoft";
  s.family = "quantize";
  s.kind = OpKind::kOpaque;
  s.doc = doc;
  s.versions = {1};
  s.inputs = kPairInputs;
  s.outputs = {{"c"}};
  s.infer = infer_quantized_pair;
  s.cost = decomposed_cost;
  s.decompose = {decompose};
  s.no_gradient = kNoGradientDiscrete;
  s.samples = {
      "a=u8[3,5,17] a_scale=f32[] a_zero_point=u8[] b=u8[3,5,17] b_scale=f32[] b_zero_point=u8[] "
      "c_scale=f32[] c_zero_point=u8[]",
      "a=i8[4,1,9] a_scale=f32[] a_zero_point=i8[] b=i8[3,1] b_scale=f32[] b_zero_point=i8[] "
      "c_scale=f32[] c_zero_point=i8[]",
      "a=i8[7] a_scale=f32[1] b=i8[7] b_scale=f32[1] c_scale=f32[1]",
      "a=u8[0,4] a_scale=f32[] b=u8[4] b_scale=f32[] c_scale=f32[]"};
  // A result that lies between two integers may go either way.
  s.tolerance = Tolerance::elementwise(1);
  return s;
}

// ---- QLinearConcat: y_scale, y_zero_point, then three inputs for each operand

constexpr int kFirst = 2, kEach = 3;

void infer_quantized_concat(Infer& i) {
  check_single(i, 0);
  check_single(i, 1);
  const int given = i.inputs() - kFirst;
  i.require(given >= kEach && given % kEach == 0,
            [&] { return fmt::format("{} inputs: two, and three for each operand, are wanted", i.inputs()); });
  i.require(i.dtype(0) == DType::kF32, "input 'y_scale' must be f32");
  for (int at = kFirst; at < i.inputs(); at += kEach) {
    i.require(i.has(at) && i.has(at + 1) && i.has(at + 2), [&] {
      return fmt::format("operand {} is not complete: bytes, a scale and a zero point are wanted", at);
    });
    i.require(contains(kBytes, i.dtype(at)) && i.dtype(at + 1) == DType::kF32 && i.dtype(at + 2) == i.dtype(at), [&] {
      return fmt::format("inputs {} to {} are {}, {} and {}: bytes, f32 and bytes of one type are wanted", at, at + 2,
                         name(i.dtype(at)), name(i.dtype(at + 1)), name(i.dtype(at + 2)));
    });
    for (int part : {at + 1, at + 2}) {
      const Dim count = product(i.shape(part));
      i.require(!count.known() || count.is(1), [&] { return fmt::format("input {} is not one number", part); });
    }
  }
  const int axis = i.axis(i.integer("axis"), i.rank(kFirst));
  Shape out = i.shape(kFirst);
  for (int at = kFirst + kEach; at < i.inputs(); at += kEach) {
    const Shape& s = i.shape(at);
    bool fits = s.size() == out.size();
    for (size_t a = 0; fits && a < s.size(); ++a) fits = int(a) == axis || same(s[a], out[a]);
    i.require(fits, [&] { return fmt::format("operand {} is {}, the first {}", at, text(s), text(out)); });
    out[size_t(axis)] = out[size_t(axis)] + s[size_t(axis)];
  }
  i.output(0, i.dtype(1), out);
}

// Of several types: the infer function says which.
constexpr InputSpec kOperands = {"inputs", kBytes | kF32Only, "*", false, true};

// ---- DynamicQuantizeMatMul

enum DynamicInput { kA, kB, kBScale, kBZero, kBias };

void infer_dynamic_product(Infer& i) {
  i.require(i.rank(kA) >= 1 && i.rank(kB) >= 2, [&] {
    return fmt::format("a is {}, b is {}: [.., m, k] and [.., k, n] are wanted", describe(i, kA), describe(i, kB));
  });
  const Dim &n = i.shape(kB).back(), &k = i.shape(kB)[size_t(i.rank(kB)) - 2];
  i.require(same(i.shape(kA).back(), k),
            [&] { return fmt::format("a is {}, b is {}: k differs", describe(i, kA), describe(i, kB)); });
  for (int input : {int(kBScale), int(kBZero), int(kBias)}) {
    if (!i.has(input)) continue;
    const Shape& s = i.shape(input);
    const bool one = input != kBias && (s.empty() || (s.size() == 1 && s[0].is(1)));
    i.require(one || (s.size() == 1 && same(s[0], n)), [&] {
      return fmt::format("input '{}' is {}: {}one for each of the {} columns is wanted", i.op().inputs[input].name,
                         describe(i, input), input == kBias ? "" : "one number, or ", n.text());
    });
  }
  Shape out;
  const Shape &a = i.shape(kA), &b = i.shape(kB);
  const size_t batches = std::max(a.size(), b.size());
  for (size_t axis = 0; axis + 2 < batches; ++axis) {
    Dim joint = 1;
    const auto of = [&](const Shape& s) { return axis + s.size() < batches ? Dim(1) : s[axis + s.size() - batches]; };
    i.require(broadcast(of(a), of(b), joint),
              [&] { return fmt::format("the batches of {} and {} differ", describe(i, kA), describe(i, kB)); });
    out.push_back(joint);
  }
  if (a.size() > 1) out.push_back(a[a.size() - 2]);
  out.push_back(n);
  i.output(0, DType::kF32, out);
}

void decompose_dynamic_product(Builder& b) {
  const std::vector<V> a = b.ops("DynamicQuantizeLinear", {b.input(kA)}, 3);
  std::vector<V> operands = {a[0], b.input(kB), a[2]};
  if (b.has(kBZero)) operands.push_back(b.input(kBZero));
  V y = b.cast(b.op("MatMulInteger", operands), DType::kF32) * (a[1] * b.input(kBScale));
  b.result(b.has(kBias) ? y + b.input(kBias) : y);
}

}  // namespace

constinit const OpSchema kQLinearAdd = quantized_pair(
    "QLinearAdd", "the sum of two quantized tensors, broadcast, quantized. Source: ONNX Runtime QLinearAdd-1.",
    decompose_pair<false>);
constinit const OpSchema kQLinearMul = quantized_pair(
    "QLinearMul", "the product of two quantized tensors, broadcast, quantized. Source: ONNX Runtime QLinearMul-1.",
    decompose_pair<true>);

constinit const OpSchema kQLinearSigmoid = {
    .name = "QLinearSigmoid",
    .domain = "com.microsoft",
    .family = "quantize",
    .kind = OpKind::kOpaque,
    .doc = "the sigmoid of a quantized tensor, quantized. Source: ONNX Runtime QLinearSigmoid-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"x", kBytes},
               {"x_scale", kF32Only},
               optional("x_zero_point", kBytes, "x"),
               {"y_scale", kF32Only},
               optional("y_zero_point", kBytes, "x")},
    .outputs = {{"y"}},
    .infer =
        [](Infer& i) {
          for (int input : {1, 2, 3, 4}) check_single(i, input);
          i.same_as(0, 0);
        },
    .cost = decomposed_cost,
    .decompose = {[](Builder& b) {
      b.result(quantized(b, b.op("Sigmoid", {dequantized(b, 0)}), 3, 4, b.dtype(b.input(0))));
    }},
    .no_gradient = kNoGradientDiscrete,
    .samples = {"x=u8[3,5,17] x_scale=f32[] x_zero_point=u8[] y_scale=f32[] y_zero_point=u8[]",
                "x=i8[7] x_scale=f32[1] y_scale=f32[1]", "x=u8[0,4] x_scale=f32[] y_scale=f32[]"},
    .tolerance = Tolerance::elementwise(1),
};

constinit const OpSchema kQLinearConcat = {
    .name = "QLinearConcat",
    .domain = "com.microsoft",
    .family = "quantize",
    .kind = OpKind::kOpaque,
    .doc =
        "quantized tensors, each with a scale and a zero point of its own, side by side in one quantization. Source: "
        "ONNX Runtime QLinearConcat-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"y_scale", kF32Only}, {"y_zero_point", kBytes}, kOperands},
    .outputs = {{"y"}},
    .attributes = {{"axis", AttributeType::kInt, kRequired}},
    .infer = infer_quantized_concat,
    .cost = decomposed_cost,
    .decompose = {[](Builder& b) {
      std::vector<V> parts;
      for (int at = kFirst; at < b.inputs(); at += kEach) parts.push_back(dequantized(b, at));
      V joined = b.op("Concat", parts, with({{"axis", b.integer("axis")}}));
      b.result(quantized(b, joined, 0, 1, b.dtype(b.input(1))));
    }},
    .no_gradient = kNoGradientDiscrete,
    .samples = {"y_scale=f32[] y_zero_point=u8[] inputs=u8[2,3,5] inputs1=f32[] inputs2=u8[] inputs3=u8[2,4,5] "
                "inputs4=f32[] inputs5=u8[] axis=1",
                "y_scale=f32[1] y_zero_point=i8[1] inputs=i8[3] inputs1=f32[1] inputs2=i8[1] axis=-1",
                "y_scale=f32[] y_zero_point=u8[] inputs=u8[0,5] inputs1=f32[] inputs2=u8[] inputs3=u8[2,5] "
                "inputs4=f32[] inputs5=u8[] axis=0"},
    .tolerance = Tolerance::elementwise(1),
};

constinit const OpSchema kDynamicQuantizeMatMul = {
    .name = "DynamicQuantizeMatMul",
    .domain = "com.microsoft",
    .family = "matmul",
    .kind = OpKind::kContraction,
    .doc =
        "a, quantized to u8 by its own range, times quantized b: (a_q - a_zero) x (b - b_zero) * a_scale * b_scale + "
        "bias. Source: ONNX Runtime DynamicQuantizeMatMul-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"a", kF32Only},
               {"b", kBytes},
               {"b_scale", kF32Only},
               optional("b_zero_point", kBytes, "b"),
               optional("bias", kF32Only)},
    .outputs = {{"y"}},
    .infer = infer_dynamic_product,
    .cost = decomposed_cost,
    .decompose = {decompose_dynamic_product},
    .no_gradient = kNoGradientDiscrete,
    .samples = {"a=f32[7,13] b=i8[13,5] b_scale=f32[] b_zero_point=i8[] bias=f32[5]",
                "a=f32[2,3,64] b=u8[64,33] b_scale=f32[33] b_zero_point=u8[33]", "a=f32[1,8] b=i8[8,3] b_scale=f32[1]",
                "a=f32[0,4] b=i8[4,3] b_scale=f32[]"},
    .tolerance = Tolerance::contraction(),
};

std::span<const OpSchema* const> contributed_quantized_ops() {
  static constexpr const OpSchema* kOps[] = {&kQLinearAdd, &kQLinearMul, &kQLinearSigmoid, &kQLinearConcat,
                                             &kDynamicQuantizeMatMul};
  return kOps;
}

}  // namespace ridgeline
