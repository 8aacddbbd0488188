// A small decoder of the Llama kind: RMSNorm in six nodes, rotary positions by Slice, Neg and Concat, eight query heads
// that share two key and value heads (Unsqueeze, Expand, Reshape), causal mask as a constant, SiLU as Sigmoid and Mul.
#include <cmath>

#include "formats/make/builder.h"

namespace ridgeline::make {

namespace {

constexpr int64_t kLayers = 4, kHidden = 256, kHeads = 8, kShared = 2, kHead = kHidden / kHeads, kInner = 688;
constexpr int64_t kVocabulary = 4096, kPositions = 512;

struct Tables {
  std::string cos, sin, mask;  // [1,1,S,kHead] twice, [1,1,S,S]
};

std::string rms_norm(Builder& b, const std::string& scope, const std::string& x) {
  const std::string mean = b.reduce_mean(scope, b.node("Pow", scope, {x, b.number(2)}), -1);
  const std::string root = b.node("Sqrt", scope, {b.node("Add", scope, {mean, b.number(1e-5f)})});
  const std::string normed = b.node("Mul", scope, {x, b.node("Div", scope, {b.number(1), root})});
  return b.node("Mul", scope, {b.uniform(Builder::parameter(scope, "weight"), {kHidden}, 0.5f, 1.5f), normed});
}

// Tables for as many positions as the model has; with a symbolic length each run takes the first S of kPositions.
Tables tables(Builder& b, const std::string& ids) {
  const MakeDim& seq = b.options().seq;
  const int64_t n = seq.is_symbolic() ? kPositions : seq.value;
  std::vector<float> cos, sin, mask;
  for (int64_t p = 0; p < n; ++p) {
    for (int64_t i = 0; i < kHead; ++i) {
      const double angle = double(p) * std::pow(10000.0, -2.0 * double(i % (kHead / 2)) / kHead);
      cos.push_back(float(std::cos(angle)));
      sin.push_back(float(std::sin(angle)));
    }
    for (int64_t i = 0; i < n; ++i) mask.push_back(i > p ? -3.4028235e38f : 0);
  }
  Tables t = {b.floats("rotary.cos", {1, 1, n, kHead}, std::move(cos)),
              b.floats("rotary.sin", {1, 1, n, kHead}, std::move(sin)),
              b.floats("causal_mask", {1, 1, n, n}, std::move(mask))};
  if (!seq.is_symbolic()) return t;
  const std::string length = b.extent_list("", ids, 1);
  for (std::string* table : {&t.cos, &t.sin, &t.mask}) *table = b.slice("", *table, 2, b.list({0}), length);
  t.mask = b.slice("", t.mask, 3, b.list({0}), length);
  return t;
}

std::string rotate(Builder& b, const std::string& scope, const std::string& x, const Tables& t) {
  const std::string low = b.slice(scope, x, 3, b.list({0}), b.list({kHead / 2}));
  const std::string high = b.slice(scope, x, 3, b.list({kHead / 2}), b.list({INT64_MAX}));
  const std::string turned = b.node("Concat", scope, {b.node("Neg", scope, {high}), low}, {{"axis", int64_t{-1}}});
  return b.node("Add", scope, {b.node("Mul", scope, {x, t.cos}), b.node("Mul", scope, {turned, t.sin})});
}

std::string product(Builder& b, const std::string& scope, const std::string& x, int64_t from, int64_t to,
                    float gain = 1) {
  return b.node("MatMul", scope,
                {x, b.normal(Builder::parameter(scope, "weight_t"), {from, to}, gain / std::sqrt(float(from)))});
}

std::string attention(Builder& b, const std::string& scope, const std::string& x, const Tables& t) {
  const MakeOptions& o = b.options();
  const auto heads = [&](const char* name, int64_t count) {
    const std::string flat = product(b, scope + "/" + name, x, kHidden, count * kHead);
    return b.node("Transpose", scope, {b.reshape(scope, flat, {o.batch, o.seq, {count, {}}, {kHead, {}}})},
                  {{"perm", Ints{0, 2, 1, 3}}});
  };
  const auto repeated = [&](const std::string& kv) {  // [N,2,S,D] to [N,8,S,D]
    const std::string wide =
        b.node("Expand", scope, {b.unsqueeze(scope, kv, 2), b.list({1, 1, kHeads / kShared, 1, 1})});
    return b.node("Reshape", scope, {wide, b.list({0, kHeads, -1, kHead})});
  };
  const std::string q = rotate(b, scope, heads("q_proj", kHeads), t);
  const std::string k = repeated(rotate(b, scope, heads("k_proj", kShared), t));
  const std::string v = repeated(heads("v_proj", kShared));
  const std::string scores =
      b.node("MatMul", scope, {q, b.node("Transpose", scope, {k}, {{"perm", Ints{0, 1, 3, 2}}})});
  const std::string masked =
      b.node("Add", scope, {b.node("Div", scope, {scores, b.number(std::sqrt(float(kHead)))}), t.mask});
  const std::string shares = b.node("Softmax", scope, {masked}, {{"axis", int64_t{-1}}});
  const std::string context =
      b.node("Transpose", scope, {b.node("MatMul", scope, {shares, v})}, {{"perm", Ints{0, 2, 1, 3}}});
  return product(b, scope + "/o_proj", b.reshape(scope, context, {o.batch, o.seq, {kHidden, {}}}), kHidden, kHidden,
                 0.7f);
}

std::string feed_forward(Builder& b, const std::string& scope, const std::string& x) {
  const std::string gate = product(b, scope + "/gate_proj", x, kHidden, kInner);
  const std::string silu = b.node("Mul", scope + "/act_fn", {gate, b.node("Sigmoid", scope + "/act_fn", {gate})});
  return product(b, scope + "/down_proj",
                 b.node("Mul", scope, {silu, product(b, scope + "/up_proj", x, kHidden, kInner)}), kInner, kHidden,
                 0.7f);
}

}  // namespace

void decoder(Builder& b) {
  const MakeOptions& o = b.options();
  const std::string ids = b.input("input_ids", onnx::TensorProto::INT64, {o.batch, o.seq});
  const Tables t = tables(b, ids);
  std::string x = b.node("Gather", "/embed_tokens", {b.normal("embed_tokens.weight", {kVocabulary, kHidden}, 1), ids},
                         {{"axis", int64_t{0}}});
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string scope = "/layers." + std::to_string(i);
    x = b.node("Add", scope, {x, attention(b, scope + "/self_attn", rms_norm(b, scope + "/input_layernorm", x), t)});
    x = b.node("Add", scope, {x, feed_forward(b, scope + "/mlp", rms_norm(b, scope + "/post_attention_layernorm", x))});
  }
  b.output("logits", product(b, "/lm_head", rms_norm(b, "/norm", x), kHidden, kVocabulary),
           {o.batch, o.seq, {kVocabulary, {}}});
}

}  // namespace ridgeline::make
