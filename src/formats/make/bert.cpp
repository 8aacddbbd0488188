// BERT-base (Devlin et al., 2018) as exporters write it: additive mask, heads by Reshape and Transpose, GELU by erf,
// pooler.
#include <cmath>

#include "formats/make/builder.h"
#include "ridgeline/error.h"

namespace ridgeline::make {

namespace {

constexpr int64_t kLayers = 12, kHidden = 768, kHeads = 12, kHead = kHidden / kHeads, kInner = 3072;
constexpr int64_t kVocabulary = 30522, kPositions = 512, kTypes = 2;
constexpr float kEpsilon = 1e-12f;

std::string embeddings(Builder& b, const std::string& ids, const std::string& types) {
  const std::string scope = "/embeddings";
  const MakeDim& seq = b.options().seq;
  const auto table = [&](const char* name, int64_t rows) {
    return b.normal("embeddings." + std::string(name) + ".weight", {rows, kHidden}, 0.04f);
  };
  const auto look_up = [&](const char* name, int64_t rows, const std::string& at) {
    return b.node("Gather", scope + "/" + name, {table(name, rows), at}, {{"axis", int64_t{0}}});
  };
  std::string x = look_up("word_embeddings", kVocabulary, ids);
  x = b.node("Add", scope, {x, look_up("token_type_embeddings", kTypes, types)});
  Ints positions(static_cast<size_t>(seq.is_symbolic() ? kPositions : seq.value));
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = int64_t(i);
  std::string at = b.unsqueeze(scope, b.ints("embeddings.position_ids", positions), 0);
  if (seq.is_symbolic()) at = b.slice(scope, at, 1, b.list({0}), b.extent_list(scope, ids, 1));
  x = b.node("Add", scope, {x, look_up("position_embeddings", kPositions, at)});
  return b.layer_norm(scope + "/LayerNorm", x, kHidden, kEpsilon);
}

// [N,S] of ones and zeros becomes [N,1,1,S] of 0 and -10000.
std::string additive_mask(Builder& b, const std::string& mask) {
  std::string x = b.unsqueeze("", b.unsqueeze("", mask, 1), 2);
  x = b.node("Cast", "", {x}, {{"to", int64_t{onnx::TensorProto::FLOAT}}});
  return b.node("Mul", "", {b.node("Sub", "", {b.number(1), x}), b.number(-10000)});
}

std::string attention(Builder& b, const std::string& scope, const std::string& x, const std::string& mask) {
  const MakeOptions& o = b.options();
  const auto heads = [&](const char* name, const Ints& order) {
    const std::string flat = b.linear(scope + "/self/" + name, x, kHidden, kHidden);
    return b.node("Transpose", scope + "/self",
                  {b.reshape(scope + "/self", flat, {o.batch, o.seq, {kHeads, {}}, {kHead, {}}})}, {{"perm", order}});
  };
  const std::string q = heads("query", {0, 2, 1, 3});
  const std::string k = heads("key", {0, 2, 3, 1});
  const std::string v = heads("value", {0, 2, 1, 3});
  const std::string self = scope + "/self";
  const std::string scaled = b.node("Div", self, {q, b.number(std::sqrt(float(kHead)))});
  const std::string scores = b.node("Add", self, {b.node("MatMul", self, {scaled, k}), mask});
  const std::string shares = b.node("Softmax", self, {scores}, {{"axis", int64_t{-1}}});
  const std::string context =
      b.node("Transpose", self, {b.node("MatMul", self, {shares, v})}, {{"perm", Ints{0, 2, 1, 3}}});
  const std::string joined = b.reshape(self, context, {o.batch, o.seq, {kHidden, {}}});
  const std::string y = b.linear(scope + "/output/dense", joined, kHidden, kHidden);
  return b.layer_norm(scope + "/output/LayerNorm", b.node("Add", scope + "/output", {y, x}), kHidden, kEpsilon);
}

std::string feed_forward(Builder& b, const std::string& scope, const std::string& x) {
  const std::string inner =
      b.gelu(scope + "/intermediate/intermediate_act_fn", b.linear(scope + "/intermediate/dense", x, kHidden, kInner));
  const std::string y = b.linear(scope + "/output/dense", inner, kInner, kHidden, 1.5f);
  return b.layer_norm(scope + "/output/LayerNorm", b.node("Add", scope + "/output", {y, x}), kHidden, kEpsilon);
}

}  // namespace

void bert(Builder& b) {
  const MakeOptions& o = b.options();
  if (!o.seq.is_symbolic() && o.seq.value > kPositions) {
    fail(ErrorCode::kUsage, "make bert: --seq {} is more than the {} positions that BERT knows", o.seq.value,
         kPositions);
  }
  const std::string ids = b.input("input_ids", onnx::TensorProto::INT64, {o.batch, o.seq});
  const std::string mask = b.input("attention_mask", onnx::TensorProto::INT64, {o.batch, o.seq});
  const std::string types = b.input("token_type_ids", onnx::TensorProto::INT64, {o.batch, o.seq});
  const std::string additive = additive_mask(b, mask);
  std::string x = embeddings(b, ids, types);
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string scope = "/encoder/layer." + std::to_string(i);
    x = feed_forward(b, scope, attention(b, scope + "/attention", x, additive));
  }
  const std::string first = b.node("Gather", "/pooler", {x, b.index(0)}, {{"axis", int64_t{1}}});
  const std::string w = b.normal("pooler.dense.weight", {kHidden, kHidden}, 1 / std::sqrt(float(kHidden)));
  const std::string bias = b.normal("pooler.dense.bias", {kHidden}, 0.05f);
  const std::string pooled = b.node("Tanh", "/pooler/activation",
                                    {b.node("Gemm", "/pooler/dense", {first, w, bias}, {{"transB", int64_t{1}}})});
  b.output("last_hidden_state", x, {o.batch, o.seq, {kHidden, {}}});
  b.output("pooler_output", pooled, {o.batch, {kHidden, {}}});
}

}  // namespace ridgeline::make
