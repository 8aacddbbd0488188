// Quantized models as exporters write them: QuantizeLinear and DequantizeLinear around each operator, 8-bit weights
// with a scale a channel, biases in 32 bits with the product of the scales.
#pragma once

#include <cmath>

#include "golden_vision.h"
#include "kernels/kernel.h"

namespace ridgeline {

/// Is there a kernel for integer convolutions beside the reference? (Not at every instruction set.)
inline bool sums_integers() { return kernels_of("ConvInteger").size() > 1; }

class Qdq {
 public:
  explicit Qdq(Vision& g) : g_(g) {}

  ValueId scale(float s) { return g_.scalar(s); }
  ValueId zero(DType type, int64_t z) {
    Tensor t(type, {});
    store_i64(type, t.data(), 0, z);
    return g_.graph.add_constant({}, t);
  }
  ValueId quantize(ValueId x, float s, int64_t z, DType type = DType::kU8) {
    return g_.op("QuantizeLinear", {x, scale(s), zero(type, z)});
  }
  ValueId dequantize(ValueId q, float s, int64_t z, DType type = DType::kU8) {
    return g_.op("DequantizeLinear", {q, scale(s), zero(type, z)});
  }
  ValueId pair(ValueId x, float s, int64_t z, DType type = DType::kU8) {
    return dequantize(quantize(x, s, z, type), s, z, type);
  }
  /// Whole numbers of the range, from a counter.
  ValueId numbers(DType type, Extents shape, int64_t low, int64_t high) {
    Tensor t(type, shape);
    for (int64_t k = 0; k < t.elements(); ++k) store_i64(type, t.data(), k, low + (++count_ * 7919) % (high - low + 1));
    return g_.graph.add_constant({}, t);
  }
  ValueId scales(int64_t n, float around) {
    Tensor t(DType::kF32, {n});
    for (int64_t k = 0; k < n; ++k) t.as<float>()[k] = around * (1 + 0.1f * float(k % 5));
    return g_.graph.add_constant({}, t);
  }
  /// i8 weights, dequantized along their first axis.
  ValueId weights(Extents shape, float around, int64_t axis = 0) {
    const int64_t n = shape[size_t(axis)];
    return g_.op("DequantizeLinear", {numbers(DType::kI8, shape, -90, 100), scales(n, around)}, with("axis", axis));
  }
  ValueId bias(int64_t n, float around) {
    return g_.op("DequantizeLinear", {numbers(DType::kI32, {n}, -3000, 3000), scales(n, around)},
                 with("axis", int64_t(0)));
  }
  ValueId conv(ValueId x, const ConvSpec& c, float s_x) {
    const int64_t k = c.kernel, p = k / 2;
    Attributes a;
    a.set("group", c.group);
    a.set("pads", std::vector<int64_t>{p, p, p, p});
    a.set("strides", std::vector<int64_t>{c.stride, c.stride});
    const float s_w = 0.01f / std::sqrt(float(c.in / c.group * k * k));
    return g_.op("Conv", {x, weights({c.out, c.in / c.group, k, k}, s_w), bias(c.out, s_x * s_w)}, a);
  }

 private:
  Vision& g_;
  int64_t count_ = 0;
};

/// ResNet's head, one block that projects its shortcut and one that does not, and its classifier.
inline void quantized_resnet(Vision& g) {
  Qdq q(g);
  constexpr float kS = 0.03f;
  ValueId x = q.pair(g.image(), 0.02f, 120);
  x = q.pair(g.op("Relu", {q.conv(x, {3, 32, 7, 2}, 0.02f)}), kS, 0);
  Attributes pool = with("kernel_shape", std::vector<int64_t>{3, 3});
  pool.set("pads", std::vector<int64_t>{1, 1, 1, 1});
  pool.set("strides", std::vector<int64_t>{2, 2});
  x = q.pair(g.op("MaxPool", {x}, pool), kS, 0);
  for (const int64_t in : {32, 64}) {
    ValueId y = q.pair(g.op("Relu", {q.conv(x, {in, 32}, kS)}), kS, 0);
    y = q.pair(g.op("Relu", {q.conv(y, {32, 32, 3}, kS)}), kS, 0);
    y = q.pair(q.conv(y, {32, 64}, kS), 0.05f, 131);
    const ValueId shortcut = in == 32 ? q.pair(q.conv(x, {32, 64}, kS), 0.04f, 125) : x;
    x = q.pair(g.op("Relu", {g.op("Add", {y, shortcut})}), kS, 0);
  }
  x = q.pair(g.op("GlobalAveragePool", {x}), kS, 0);
  x = q.pair(g.op("Flatten", {x}, with("axis", int64_t(1))), kS, 0);
  const ValueId y = g.op("Gemm", {x, q.weights({10, 64}, 0.002f), q.bias(10, kS * 0.002f)}, with("transB", int64_t(1)));
  g.output(q.pair(y, 0.1f, 128));
}

}  // namespace ridgeline
