// Transformers, ConvNeXt and PP-OCRv4 recognition cut down to one block of each kind, node for node as their exporters
// spell them.
#pragma once

#include "golden_vision.h"

namespace ridgeline {

class Sequence : public Vision {
 public:
  using Axes = std::vector<int64_t>;
  ValueId integers(const Axes& v) { return graph.add_constant({}, Tensor::from<int64_t>({int64_t(v.size())}, v)); }
  ValueId integer(int64_t v) { return graph.add_constant({}, Tensor::scalar(v)); }
  ValueId transpose(ValueId x, const Axes& perm) { return op("Transpose", {x}, with("perm", perm)); }
  ValueId reshape(ValueId x, const Axes& shape) {
    return op("Reshape", {x, integers(shape)}, with("allowzero", int64_t(0)));
  }
  ValueId layer_norm(ValueId x, int64_t n) {
    Attributes a = with("axis", int64_t(-1));
    a.set("epsilon", 1e-6);
    return op("LayerNormalization", {x, weight({n}, 0.5, 1.5), weight({n})}, a);
  }
  /// PyTorch writes the bias first.
  ValueId linear(ValueId x, int64_t in, int64_t out, ValueId bias = kNoValue) {
    return op("Add", {bias == kNoValue ? weight({out}) : bias, op("MatMul", {x, weight({in, out}, -0.5, 0.5)})});
  }
  ValueId gelu(ValueId x) {
    const ValueId e = op("Add", {op("Erf", {op("Div", {x, scalar(1.4142135381698608f)})}), scalar(1)});
    return op("Mul", {op("Mul", {x, e}), scalar(0.5f)});
  }
  ValueId softmax(ValueId x, int64_t axis = -1) { return op("Softmax", {x}, with("axis", axis)); }
};

inline void convnext(Sequence& g) {
  const Sequence::Axes kLast = {0, 2, 3, 1}, kFirst = {0, 3, 1, 2};
  auto norm = [&](ValueId x, int64_t n) { return g.transpose(g.layer_norm(g.transpose(x, kLast), n), kFirst); };
  auto patches = [&](ValueId x, int64_t in, int64_t out, int64_t k) {
    Attributes a = with("strides", std::vector<int64_t>{k, k});
    a.set("kernel_shape", std::vector<int64_t>{k, k});
    return g.op("Conv", {x, g.weight({out, in, k, k}, -0.5, 0.5), g.weight({out})}, a);
  };
  auto block = [&](ValueId x, int64_t n, ValueId bias) {
    ValueId y = g.transpose(g.conv2d(x, {n, n, 7, 1, n, true}), kLast);
    y = g.gelu(g.linear(g.layer_norm(y, n), n, 2 * n));
    y = g.transpose(g.linear(y, 2 * n, n, bias), kFirst);
    return g.op("Add", {g.op("Mul", {g.weight({n, 1, 1}, 0.05, 0.3), y}), x});
  };
  const ValueId bias = g.weight({8});
  ValueId x = norm(patches(g.image(), 3, 8, 4), 8);
  x = block(block(x, 8, bias), 8, g.op("Identity", {bias}));
  x = block(patches(norm(x, 8), 8, 16, 2), 16, kNoValue);
  x = norm(g.op("GlobalAveragePool", {x}), 16);
  g.output(g.gemm(g.op("Flatten", {x}, with("axis", int64_t(1))), 16, 10));
}

/// torchvision's ViT, two layers: nn.MultiheadAttention in sequence-first order, Q, K and V cut out of one product by
/// extents computed from a Shape.
inline void vit(Sequence& g) {
  constexpr int64_t kDim = 16, kHeads = 2, kTokens = 5;
  const Sequence::Axes kSwap = {1, 0, 2};
  Attributes patch = with("strides", std::vector<int64_t>{8, 8});
  patch.set("kernel_shape", std::vector<int64_t>{8, 8});
  ValueId x = g.op("Conv", {g.image(), g.weight({kDim, 3, 8, 8}, -0.2, 0.2), g.weight({kDim})}, patch);
  x = g.transpose(g.reshape(x, {1, kDim, 4}), {0, 2, 1});
  // The class token, expanded to a batch that the exporter works out at run time.
  const ValueId wanted = g.integers({1, -1, -1});
  const ValueId ones =
      g.op("ConstantOfShape", {g.integers({3})}, with("value", Tensor::from<int64_t>({1}, std::vector<int64_t>{1})));
  const ValueId open = g.op("Equal", {wanted, g.op("Mul", {ones, g.integer(-1)})});
  const ValueId token = g.op("Expand", {g.weight({1, 1, kDim}), g.op("Where", {open, ones, wanted})});
  x = g.op("Concat", {token, x}, with("axis", int64_t(1)));
  x = g.op("Add", {x, g.weight({1, kTokens, kDim})});
  for (int layer = 0; layer < 2; ++layer) {
    const ValueId y = g.linear(g.transpose(g.layer_norm(x, kDim), kSwap), kDim, 3 * kDim);
    const ValueId last = g.integers({2});
    const ValueId width = g.op("Gather", {g.op("Shape", {y}), last}, with("axis", int64_t(0)));
    const ValueId third = g.op("Div", {g.op("Add", {width, g.integers({2})}), g.integers({3})});
    std::vector<ValueId> cut, ends = {g.integers({0})};
    for (int64_t i = 1; i <= 3; ++i) ends.push_back(g.op("Mul", {third, g.integers({i})}));
    for (size_t i = 0; i < 3; ++i)
      cut.push_back(g.reshape(g.op("Slice", {y, ends[i], ends[i + 1], last}), {kTokens, kHeads, kDim / kHeads}));
    const ValueId q = g.op("Div", {g.transpose(cut[0], kSwap), g.scalar(2.8284271f)});
    const ValueId p = g.softmax(g.op("MatMul", {q, g.transpose(cut[1], {1, 2, 0})}));
    ValueId a = g.transpose(g.op("MatMul", {p, g.transpose(cut[2], kSwap)}), kSwap);
    a = g.reshape(g.gemm(g.reshape(a, {kTokens, kDim}), kDim, kDim), {kTokens, 1, kDim});
    x = g.op("Add", {g.transpose(a, kSwap), x});
    x = g.op("Add", {x, g.linear(g.gelu(g.linear(g.layer_norm(x, kDim), kDim, 32)), 32, kDim)});
  }
  x = g.op("Gather", {g.layer_norm(x, kDim), g.integer(0)}, with("axis", int64_t(1)));
  g.output(g.gemm(x, kDim, 10));
}

/// BERT's encoder, two layers, with its additive mask.
inline void bert(Sequence& g) {
  constexpr int64_t kDim = 16, kHeads = 2, kTokens = 6;
  const Sequence::Axes kSplit = {1, kTokens, kHeads, kDim / kHeads};
  const ValueId ids = g.input("input_ids", {1, kTokens}, DType::kI64);
  const ValueId seen = g.input("attention_mask", {1, kTokens}, DType::kI64);
  const ValueId kinds = g.input("token_type_ids", {1, kTokens}, DType::kI64);
  ValueId x = g.op("Add", {g.op("Gather", {g.weight({30, kDim}), ids}), g.op("Gather", {g.weight({2, kDim}), kinds})});
  x = g.op("Add", {x, g.weight({kTokens, kDim})});
  ValueId mask = g.op("Unsqueeze", {g.op("Unsqueeze", {seen, g.integers({1})}), g.integers({2})});
  mask = g.op("Sub", {g.scalar(1), g.op("Cast", {mask}, with("to", int64_t(1)))});
  mask = g.op("Mul", {mask, g.scalar(-10000)});
  x = g.layer_norm(x, kDim);
  for (int layer = 0; layer < 2; ++layer) {
    auto head = [&] { return g.reshape(g.linear(x, kDim, kDim), kSplit); };
    const ValueId q = g.transpose(head(), {0, 2, 1, 3}), k = head(), v = g.transpose(head(), {0, 2, 1, 3});
    ValueId s = g.op("Div", {g.op("MatMul", {q, g.transpose(k, {0, 2, 3, 1})}), g.scalar(2.8284271f)});
    s = g.softmax(g.op("Add", {s, mask}));
    const ValueId a = g.reshape(g.transpose(g.op("MatMul", {s, v}), {0, 2, 1, 3}), {1, kTokens, kDim});
    x = g.layer_norm(g.op("Add", {g.linear(a, kDim, kDim), x}), kDim);
    x = g.layer_norm(g.op("Add", {g.linear(g.gelu(g.linear(x, kDim, 32)), 32, kDim), x}), kDim);
  }
  g.output(x);
}

/// PP-OCRv4 recognition: the shared backbone, then one attention block between convolutions with SiLU (x * sigmoid(1 *
/// x)); every norm in small operators, every shape computed.
inline void ppocr_recognition(Sequence& g) {
  constexpr int64_t kDim = 8, kHeads = 2;
  auto silu = [&](ValueId x) {
    const ValueId one = g.graph.add_constant({}, Tensor::from<float>({1}, std::vector<float>{1}));
    return g.op("Mul", {x, g.op("Sigmoid", {g.op("Mul", {x, one})})});
  };
  auto mean = [&](ValueId x) { return g.op("ReduceMean", {x, g.integers({-1})}, with("keepdims", int64_t(1))); };
  auto norm = [&](ValueId x, float epsilon) {
    const ValueId d = g.op("Sub", {x, mean(x)});
    const ValueId variance = mean(g.op("Pow", {d, g.scalar(2)}));
    const ValueId y = g.op("Div", {d, g.op("Sqrt", {g.op("Add", {variance, g.scalar(epsilon)})})});
    return g.op("Add", {g.op("Mul", {y, g.weight({kDim}, 0.5, 1.5)}), g.weight({kDim})});
  };
  auto linear = [&](ValueId x, int64_t in, int64_t out) {
    return g.op("Add", {g.op("MatMul", {x, g.weight({in, out}, -0.5, 0.5)}), g.weight({out})});
  };
  auto cast = [&](ValueId x, int64_t to) { return g.op("Cast", {x}, with("to", to)); };
  auto number = [&](int32_t v) {
    return cast(g.graph.add_constant({}, Tensor::from<int32_t>({1}, std::vector<int32_t>{v})), 7);
  };
  auto slice = [&](ValueId x, int64_t axis, int64_t at) {
    return g.op("Slice", {x, g.integers({at}), g.integers({at + 1}), g.integers({axis}), g.integers({1})});
  };
  auto extent = [&](ValueId x, int64_t axis) { return slice(cast(g.op("Shape", {x}), 6), 0, axis); };
  auto joined = [&](const std::vector<ValueId>& parts) { return g.op("Concat", parts, with("axis", int64_t(0))); };

  Attributes pool = with("kernel_shape", std::vector<int64_t>{3, 2});
  pool.set("strides", std::vector<int64_t>{3, 2});
  const ValueId pooled = g.op("AveragePool", {paddle_backbone(g, g.input("x", {1, 3, 12, 32}))[1]}, pool);
  ValueId x = silu(g.conv_norm(silu(g.conv_norm(pooled, {16, 4, 3})), {4, kDim}));
  const ValueId width = extent(x, 3);
  const ValueId front = g.op("Slice", {g.op("Shape", {x}), g.integers({0}), g.integers({2}), g.integers({0})});
  x = g.transpose(g.op("Reshape", {x, joined({front, g.integers({-1})})}), {0, 2, 1});
  for (int layer = 0; layer < 2; ++layer) {
    const ValueId y = norm(x, 1e-5f), tokens = extent(y, 1);
    const ValueId shape = joined({number(0), cast(tokens, 7), number(3), number(kHeads), number(kDim / kHeads)});
    const ValueId qkv = g.transpose(g.op("Reshape", {linear(y, kDim, 3 * kDim), shape}), {2, 0, 3, 1, 4});
    auto part = [&](int64_t i) { return g.op("Squeeze", {slice(qkv, 0, i), g.integers({0})}); };
    const ValueId half = g.graph.add_constant({}, Tensor::from<float>({1}, std::vector<float>{0.5f}));
    const ValueId q = g.op("Mul", {part(0), half}), k = g.transpose(part(1), {0, 1, 3, 2});
    const ValueId p = g.softmax(g.op("MatMul", {q, k}), 3);
    const ValueId a = g.transpose(g.op("MatMul", {p, part(2)}), {0, 2, 1, 3});
    const ValueId merged = g.op("Reshape", {a, joined({number(0), cast(tokens, 7), number(kDim)})});
    x = g.op("Add", {x, linear(merged, kDim, kDim)});
    x = g.op("Add", {x, linear(silu(linear(norm(x, 1e-5f), kDim, 16)), 16, kDim)});
  }
  x = g.op("Reshape", {norm(x, 1e-6f), joined({number(0), number(1), cast(width, 7), number(kDim)})});
  x = silu(g.conv_norm(g.transpose(x, {0, 3, 1, 2}), {kDim, 16}));
  x = silu(g.conv_norm(g.op("Concat", {pooled, x}, with("axis", int64_t(1))), {32, kDim, 3}));
  x = g.transpose(g.op("Squeeze", {x, g.integers({2})}), {0, 2, 1});
  g.output(g.softmax(linear(x, kDim, 20), 2));
}

}  // namespace ridgeline
