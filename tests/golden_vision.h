// Vision models cut down to one block of each kind, a few channels wide, node for node as their exporters spell them:
// PyTorch's (opset 17, BatchNormalization kept) and Paddle's (opset 12).
#pragma once

#include "graph_maker.h"

namespace ridgeline {

struct ConvSpec {
  int64_t in, out, kernel = 1, stride = 1, group = 1;
  bool bias = false;
};

class Vision : public G {
 public:
  ValueId conv2d(ValueId x, const ConvSpec& c) {
    const int64_t k = c.kernel, p = k / 2;
    Attributes a;
    a.set("dilations", std::vector<int64_t>{1, 1});
    a.set("group", c.group);
    a.set("kernel_shape", std::vector<int64_t>{k, k});
    a.set("pads", std::vector<int64_t>{p, p, p, p});
    a.set("strides", std::vector<int64_t>{c.stride, c.stride});
    std::vector<ValueId> in = {x, weight({c.out, c.in / c.group, k, k}, -0.5, 0.5)};
    if (c.bias) in.push_back(weight({c.out}));
    return op("Conv", in, a);
  }
  ValueId norm(ValueId x, int64_t channels) { return batch_norm(x, channels, with("training_mode", int64_t(0))); }
  ValueId conv_norm(ValueId x, const ConvSpec& c) { return norm(conv2d(x, c), c.out); }
  ValueId depthwise(ValueId x, int64_t channels, int64_t stride = 1, bool bias = false) {
    return conv2d(x, {channels, channels, 3, stride, channels, bias});
  }
  ValueId relu6(ValueId x) { return op("Clip", {x, scalar(0), scalar(6)}); }
  ValueId silu(ValueId x) { return op("Mul", {x, op("Sigmoid", {x})}); }
  ValueId hard_sigmoid(ValueId x, double alpha = 1.0 / 6) {
    Attributes a = with("alpha", alpha);
    a.set("beta", 0.5);
    return op("HardSigmoid", {x}, a);
  }
  ValueId gemm(ValueId x, int64_t in, int64_t out) {
    return op("Gemm", {x, weight({out, in}), weight({out})}, with("transB", int64_t(1)));
  }
  ValueId classifier_input(ValueId x) {
    return op("Flatten", {op("GlobalAveragePool", {x})}, with("axis", int64_t(1)));
  }
  ValueId image(int64_t size = 16) { return input("input", {1, 3, size, size}); }
};

inline void resnet50(Vision& g) {
  ValueId x = g.op("Relu", {g.conv_norm(g.image(), {3, 8, 7, 2})});
  Attributes pool = with("kernel_shape", std::vector<int64_t>{3, 3});
  pool.set("pads", std::vector<int64_t>{1, 1, 1, 1});
  pool.set("strides", std::vector<int64_t>{2, 2});
  x = g.op("MaxPool", {x}, pool);
  for (const int64_t in : {8, 16}) {  // the first of a stage projects its shortcut
    ValueId y = g.op("Relu", {g.conv_norm(x, {in, 4})});
    y = g.op("Relu", {g.conv_norm(y, {4, 4, 3})});
    y = g.conv_norm(y, {4, 16});
    x = g.op("Relu", {g.op("Add", {y, in == 8 ? g.conv_norm(x, {8, 16}) : x})});
  }
  g.output(g.gemm(g.classifier_input(x), 16, 10));
}

inline void mobilenet_v2(Vision& g) {
  ValueId x = g.relu6(g.conv_norm(g.image(), {3, 8, 3, 2}));
  x = g.conv_norm(g.relu6(g.norm(g.depthwise(x, 8), 8)), {8, 4});  // no expansion
  for (const int64_t stride : {2, 1}) {
    ValueId y = g.relu6(g.conv_norm(x, {4, 24}));
    y = g.conv_norm(g.relu6(g.norm(g.depthwise(y, 24, stride), 24)), {24, 4});
    x = stride == 1 ? g.op("Add", {x, y}) : y;
  }
  x = g.relu6(g.conv_norm(x, {4, 32}));
  g.output(g.gemm(g.classifier_input(x), 32, 10));
}

inline void mobilenet_v3(Vision& g) {
  // Equal initializers are written once and shared through Identity.
  const ValueId squeeze_bias = g.weight({4}), shared_bias = g.op("Identity", {squeeze_bias});
  auto squeeze = [&](ValueId x, int64_t channels, ValueId bias) {
    ValueId s = g.op("GlobalAveragePool", {x});
    s = g.op("Relu", {g.op("Conv", {s, g.weight({4, channels, 1, 1}), bias})});
    return g.op("Mul", {g.hard_sigmoid(g.conv2d(s, {4, channels, 1, 1, 1, true})), x});
  };
  auto hard_swish = [&](ValueId x) { return g.op("HardSwish", {x}); };
  ValueId x = hard_swish(g.conv_norm(g.image(), {3, 8, 3, 2}));
  x = g.conv_norm(squeeze(g.op("Relu", {g.norm(g.depthwise(x, 8, 2), 8)}), 8, squeeze_bias), {8, 8});
  ValueId y = hard_swish(g.conv_norm(x, {8, 16}));
  y = squeeze(hard_swish(g.norm(g.depthwise(y, 16), 16)), 16, shared_bias);
  x = g.op("Add", {g.conv_norm(y, {16, 8}), x});
  x = hard_swish(g.conv_norm(x, {8, 24}));
  x = g.op("HardSwish", {g.gemm(g.classifier_input(x), 24, 16)});
  g.output(g.gemm(x, 16, 10));
}

inline void efficientnet(Vision& g) {
  auto squeeze = [&](ValueId x, int64_t channels) {
    ValueId s = g.silu(g.conv2d(g.op("GlobalAveragePool", {x}), {channels, 2, 1, 1, 1, true}));
    return g.op("Mul", {g.op("Sigmoid", {g.conv2d(s, {2, channels, 1, 1, 1, true})}), x});
  };
  ValueId x = g.silu(g.conv_norm(g.image(), {3, 8, 3, 2}));
  x = g.conv_norm(squeeze(g.silu(g.norm(g.depthwise(x, 8), 8)), 8), {8, 4});
  for (const int64_t stride : {2, 1}) {
    ValueId y = g.silu(g.conv_norm(x, {4, 24}));
    y = g.conv_norm(squeeze(g.silu(g.norm(g.depthwise(y, 24, stride), 24)), 24), {24, 4});
    x = stride == 1 ? g.op("Add", {y, x}) : y;
  }
  x = g.silu(g.conv_norm(x, {4, 32}));
  g.output(g.gemm(g.classifier_input(x), 32, 10));
}

// ---- Paddle: learnable scale and shift around each activation, constants of one element, spelled-out HardSwish

inline ValueId scale_and_shift(Vision& g, ValueId x, bool last = false) {
  const float s = last ? 0.63f : 1.9f, t = last ? -0.55f : 0.8f;
  auto one = [&](float v) { return g.graph.add_constant({}, Tensor::from<float>({1}, std::vector<float>{v})); };
  return g.op("Add", {g.op("Mul", {one(s), x}), one(t)});
}

inline ValueId paddle_activation(Vision& g, ValueId x) {  // after a convolution with bias
  x = scale_and_shift(g, x);
  const ValueId clipped = g.op("Clip", {g.op("Add", {x, g.scalar(3)}), g.scalar(0), g.scalar(6)});
  return scale_and_shift(g, g.op("Div", {g.op("Mul", {x, clipped}), g.scalar(6)}), true);
}

inline ValueId paddle_squeeze(Vision& g, ValueId x, int64_t channels, double alpha) {
  ValueId s = g.op("Relu", {g.conv2d(g.op("GlobalAveragePool", {x}), {channels, 2, 1, 1, 1, true})});
  return g.op("Mul", {x, g.hard_sigmoid(g.conv2d(s, {2, channels, 1, 1, 1, true}), alpha)});
}

/// The backbone both PP-OCRv4 models share, two blocks of it: 3 -> 8 -> 16 channels, a quarter of the size.
inline std::vector<ValueId> paddle_backbone(Vision& g, ValueId x) {
  x = g.conv_norm(x, {3, 8, 3, 2});
  x = paddle_activation(g, g.depthwise(x, 8, 1, true));
  const ValueId first = x = paddle_activation(g, g.conv2d(x, {8, 8, 1, 1, 1, true}));
  x = scale_and_shift(g, g.depthwise(x, 8, 2, true));  // a strided one has no activation
  x = paddle_squeeze(g, x, 8, 1.0 / 6);
  return {first, paddle_activation(g, g.conv2d(x, {8, 16, 1, 1, 1, true}))};
}

inline ValueId upsampled(Vision& g, ValueId x) {
  Attributes a = with("mode", std::string("nearest"));
  a.set("coordinate_transformation_mode", std::string("asymmetric"));
  a.set("nearest_mode", std::string("floor"));
  return g.op("Resize", {x, kNoValue, g.graph.add_constant({}, Tensor::from<float>({4}, {1, 1, 2, 2}))}, a);
}

inline void ppocr_detection(Vision& g) {
  const std::vector<ValueId> levels = paddle_backbone(g, g.input("x", {1, 3, 16, 16}));
  // The neck: each level through a squeeze block with a shortcut, the coarse one added to the fine one, all joined.
  auto lateral = [&](ValueId x, int64_t in, int64_t out, int64_t k) {
    const ValueId y = g.conv2d(x, {in, out, k});
    return g.op("Add", {y, paddle_squeeze(g, y, out, 0.2)});
  };
  const ValueId coarse = lateral(levels[1], 16, 8, 1);
  const ValueId fine = g.op("Add", {lateral(levels[0], 8, 8, 1), upsampled(g, coarse)});
  const ValueId joined =
      g.op("Concat", {upsampled(g, lateral(coarse, 8, 4, 3)), lateral(fine, 8, 4, 3)}, with("axis", int64_t(1)));
  auto transposed = [&](ValueId x, int64_t in, int64_t out) {
    Attributes a = with("strides", std::vector<int64_t>{2, 2});
    a.set("kernel_shape", std::vector<int64_t>{2, 2});
    return g.op("Add", {g.op("ConvTranspose", {x, g.weight({in, out, 2, 2})}, a), g.weight({1, out, 1, 1})});
  };
  ValueId x = g.op("Relu", {g.conv_norm(joined, {8, 4, 3})});
  x = g.op("Relu", {g.norm(transposed(x, 4, 4), 4)});
  g.output(g.op("Sigmoid", {transposed(x, 4, 1)}));
}

}  // namespace ridgeline
