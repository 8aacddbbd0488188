// ViT-B/16 (Dosovitskiy et al., 2020) as torchvision exports it: one product for Q, K and V with three slices, heads
// folded into the batch, sequence first inside attention.
#include <cmath>

#include "formats/make/builder.h"

namespace ridgeline::make {

namespace {

constexpr int64_t kLayers = 12, kHidden = 768, kHeads = 12, kHead = kHidden / kHeads, kInner = 3072;
constexpr int64_t kImage = 224, kPatch = 16, kPatches = (kImage / kPatch) * (kImage / kPatch), kTokens = kPatches + 1;
constexpr float kEpsilon = 1e-6f;

std::string patches(Builder& b, const std::string& image) {
  const MakeDim& batch = b.options().batch;
  const std::string w =
      b.normal("conv_proj.weight", {kHidden, 3, kPatch, kPatch}, 1 / std::sqrt(3.0f * kPatch * kPatch));
  const std::string bias = b.normal("conv_proj.bias", {kHidden}, 0.05f);
  std::string x = b.node("Conv", "/conv_proj", {image, w, bias},
                         {{"dilations", Ints{1, 1}},
                          {"group", int64_t{1}},
                          {"kernel_shape", Ints{kPatch, kPatch}},
                          {"pads", Ints{0, 0, 0, 0}},
                          {"strides", Ints{kPatch, kPatch}}});
  x = b.node("Transpose", "", {b.reshape("", x, {batch, {kHidden, {}}, {kPatches, {}}})}, {{"perm", Ints{0, 2, 1}}});
  std::string shape;
  if (batch.is_symbolic()) {
    shape = b.node("Concat", "", {b.extent_list("", image, 0), b.list({1}), b.list({1})}, {{"axis", int64_t{0}}});
  } else {
    shape = b.list({batch.value, 1, 1});
  }
  const std::string token = b.node("Expand", "", {b.normal("class_token", {1, 1, kHidden}, 0.5f), shape});
  x = b.node("Concat", "", {token, x}, {{"axis", int64_t{1}}});
  return b.node("Add", "/encoder", {x, b.normal("encoder.pos_embedding", {1, kTokens, kHidden}, 0.2f)});
}

std::string attention(Builder& b, const std::string& scope, const std::string& x) {
  const MakeDim& batch = b.options().batch;
  const auto swap_first = [&](const std::string& v) {
    return b.node("Transpose", scope, {v}, {{"perm", Ints{1, 0, 2}}});
  };
  const std::string packed = b.linear(scope + "/in_proj", swap_first(x), kHidden, 3 * kHidden);
  const int64_t rows = batch.is_symbolic() ? -1 : batch.value * kHeads;
  const auto heads = [&](int64_t part) {
    const std::string flat = b.slice(scope, packed, -1, b.list({part * kHidden}), b.list({(part + 1) * kHidden}));
    return swap_first(b.node("Reshape", scope, {flat, b.list({kTokens, rows, kHead})}));
  };
  const std::string q = b.node("Div", scope, {heads(0), b.number(std::sqrt(float(kHead)))});
  const std::string k = b.node("Transpose", scope, {heads(1)}, {{"perm", Ints{0, 2, 1}}});
  const std::string v = heads(2);
  const std::string shares = b.node("Softmax", scope, {b.node("MatMul", scope, {q, k})}, {{"axis", int64_t{-1}}});
  const std::string context = swap_first(b.node("MatMul", scope, {shares, v}));
  const int64_t all = batch.is_symbolic() ? -1 : kTokens * batch.value;
  const std::string joined = b.node("Reshape", scope, {context, b.list({all, kHidden})});
  const std::string w =
      b.normal(Builder::parameter(scope, "out_proj.weight"), {kHidden, kHidden}, 0.7f / std::sqrt(float(kHidden)));
  const std::string bias = b.normal(Builder::parameter(scope, "out_proj.bias"), {kHidden}, 0.05f);
  const std::string y =
      b.node("Gemm", scope, {joined, w, bias}, {{"alpha", 1.0f}, {"beta", 1.0f}, {"transB", int64_t{1}}});
  return swap_first(b.node("Reshape", scope, {y, b.list({kTokens, batch.is_symbolic() ? -1 : batch.value, kHidden})}));
}

}  // namespace

void vit(Builder& b) {
  const MakeDim& batch = b.options().batch;
  std::string x = patches(b, b.input("input", onnx::TensorProto::FLOAT, {batch, {3, {}}, {kImage, {}}, {kImage, {}}}));
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string scope = "/encoder/layers/encoder_layer_" + std::to_string(i);
    const std::string normed = b.layer_norm(scope + "/ln_1", x, kHidden, kEpsilon);
    x = b.node("Add", scope, {attention(b, scope + "/self_attention", normed), x});
    const std::string again = b.layer_norm(scope + "/ln_2", x, kHidden, kEpsilon);
    const std::string inner = b.gelu(scope + "/mlp/mlp.1", b.linear(scope + "/mlp/mlp.0", again, kHidden, kInner));
    x = b.node("Add", scope, {x, b.linear(scope + "/mlp/mlp.3", inner, kInner, kHidden, 0.7f)});
  }
  x = b.layer_norm("/encoder/ln", x, kHidden, kEpsilon);
  const std::string first = b.node("Gather", "", {x, b.index(0)}, {{"axis", int64_t{1}}});
  const std::string w = b.normal("heads.head.weight", {1000, kHidden}, 1 / std::sqrt(float(kHidden)));
  const std::string bias = b.normal("heads.head.bias", {1000}, 0.05f);
  b.output("output",
           b.node("Gemm", "/heads/head", {first, w, bias}, {{"alpha", 1.0f}, {"beta", 1.0f}, {"transB", int64_t{1}}}),
           {batch, {1000, {}}});
}

}  // namespace ridgeline::make
