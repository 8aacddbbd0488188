// Recurrences with a state that the caller keeps: linear attention and the short convolution before it.
// Source: ONNX LinearAttention-27, CausalConvWithState-27; Yang et al., Gated delta networks, 2024.
#include <algorithm>
#include <cmath>

#include "core/saturate.h"
#include "ops/common.h"
#include "ops/families.h"
#include "ops/linear_attention.h"

namespace ridgeline {
namespace {

constexpr TypeSet kTypes = type_bit(DType::kF32) | type_bit(DType::kF16) | type_bit(DType::kBF16);

constexpr InputSpec optional_input(std::string_view name, TypeSet types, std::string_view same_as = "") {
  InputSpec spec{name, types, same_as};
  spec.optional = true;
  return spec;
}

bool same(const Dim& a, const Dim& b) { return !a.known() || !b.known() || a == b; }

// ---- LinearAttention

enum LinearInput { kQuery, kKey, kValue, kState, kDecay, kBeta };

void infer_linear(Infer& i) {
  const std::string rule = i.string("update_rule");
  const bool delta = rule == "delta" || rule == "gated_delta", gated = rule == "gated" || rule == "gated_delta";
  i.require(delta || gated || rule == "linear",
            [&] { return fmt::format("update_rule = '{}'; allowed: linear, gated, delta, gated_delta", rule); });
  const int64_t q_heads = i.integer("q_num_heads"), heads = i.integer("kv_num_heads");
  i.require(q_heads > 0 && heads > 0 && q_heads % heads == 0, [&] {
    return fmt::format("q_num_heads = {}, kv_num_heads = {}; allowed: a multiple of the second", q_heads, heads);
  });
  const Shape &q = i.shape(kQuery), &k = i.shape(kKey), &v = i.shape(kValue);
  const auto packed = [&](int input, const Shape& s, int64_t by) {
    i.require(s.size() == 3 && same(s[0], q[0]) && same(s[1], q[1]) && (!s[2].known() || s[2].value() % by == 0), [&] {
      return fmt::format("'{}' is {}; allowed: [batch, length, heads * depth] with {} heads and query {}",
                         i.op().inputs[input].name, text(s), by, text(q));
    });
  };
  packed(kQuery, q, q_heads);
  packed(kKey, k, heads);
  packed(kValue, v, heads);
  const Dim depth = floor_div(q[2], Dim(q_heads)), value_depth = floor_div(v[2], Dim(heads));
  i.require(same(depth, floor_div(k[2], Dim(heads))),
            [&] { return fmt::format("query {} and key {} differ in depth", text(q), text(k)); });
  const Shape state = {q[0], heads, depth, value_depth};
  if (i.has(kState)) {
    const Shape& given = i.shape(kState);
    bool fits = given.size() == 4;
    for (size_t a = 0; fits && a < 4; ++a) fits = same(given[a], state[a]);
    i.require(fits, [&] { return fmt::format("'past_state' is {}; allowed: {}", text(given), text(state)); });
  }
  i.require(i.has(kDecay) == gated,
            [&] { return fmt::format("update_rule = '{}': 'decay' must be {}", rule, gated ? "given" : "left out"); });
  i.require(i.has(kBeta) == delta,
            [&] { return fmt::format("update_rule = '{}': 'beta' must be {}", rule, delta ? "given" : "left out"); });
  if (gated) {
    const Shape& g = i.shape(kDecay);
    i.require(g.size() == 3 && same(g[0], q[0]) && same(g[1], q[1]) && (same(g[2], k[2]) || g[2].is(heads)), [&] {
      return fmt::format("'decay' is {}; allowed: [batch, length, {}], or a number for each element of 'key' {}",
                         text(g), heads, text(k));
    });
  }
  if (delta) {
    const Shape& b = i.shape(kBeta);
    i.require(b.size() == 3 && same(b[0], q[0]) && same(b[1], q[1]) && (same(b[2], heads) || b[2].is(1)), [&] {
      return fmt::format("'beta' is {}; allowed: [batch, length, {}] or [batch, length, 1]", text(b), heads);
    });
  }
  i.output(0, i.dtype(kQuery), {q[0], q[1], Dim(q_heads) * value_depth});
  if (i.wants(1)) i.output(1, i.has(kState) ? i.dtype(kState) : i.dtype(kQuery), state);
}

LinearAttentionShape shape_of(const Extents& q, const Extents& v, int64_t q_heads, int64_t heads, double scale) {
  LinearAttentionShape s;
  s.batch = q[0];
  s.length = q[1];
  s.q_heads = q_heads;
  s.heads = heads;
  s.depth = q[2] / q_heads;
  s.value_depth = v[2] / heads;
  s.scale = scale != 0 ? scale : 1 / std::sqrt(double(std::max<int64_t>(1, s.depth)));
  return s;
}

/// The recurrence as the standard writes it, one position after the other.
void reference_linear(Reference& r) {
  const LinearAttentionShape s = shape_of(r.in[kQuery].shape, r.in[kValue].shape, r.integer("q_num_heads"),
                                          r.integer("kv_num_heads"), r.number("scale"));
  const bool gated = r.has(kDecay), delta = r.has(kBeta), wants = r.wants(1);
  const int64_t per = s.q_heads / s.heads;
  r.parallel_for(s.batch * s.heads, [&](int64_t begin, int64_t end) {
    std::vector<double> state(static_cast<size_t>(s.depth * s.value_depth)), seen(static_cast<size_t>(s.value_depth));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t b = row / s.heads, h = row % s.heads, first = row * s.depth * s.value_depth;
      std::fill(state.begin(), state.end(), 0);
      for (size_t n = 0; r.has(kState) && n < state.size(); ++n) state[n] = r.in[kState].f[size_t(first) + n];
      for (int64_t t = 0; t < s.length; ++t) {
        const int64_t at = b * s.length + t;
        const double* k = r.in[kKey].f.data() + (at * s.heads + h) * s.depth;
        const double* v = r.in[kValue].f.data() + (at * s.heads + h) * s.value_depth;
        if (gated) {
          const int64_t width = r.in[kDecay].dim(2);
          for (int64_t d = 0; d < s.depth; ++d) {
            const double g = r.in[kDecay].f[size_t(at * width + (width == s.heads ? h : h * s.depth + d))];
            for (int64_t e = 0; e < s.value_depth; ++e) state[size_t(d * s.value_depth + e)] *= std::exp(g);
          }
        }
        std::fill(seen.begin(), seen.end(), 0);
        for (int64_t d = 0; delta && d < s.depth; ++d)
          for (int64_t e = 0; e < s.value_depth; ++e) seen[size_t(e)] += k[d] * state[size_t(d * s.value_depth + e)];
        const double rate = delta ? r.in[kBeta].f[size_t(r.in[kBeta].dim(2) == 1 ? at : at * s.heads + h)] : 1;
        for (int64_t d = 0; d < s.depth; ++d)
          for (int64_t e = 0; e < s.value_depth; ++e)
            state[size_t(d * s.value_depth + e)] += rate * k[d] * (v[e] - seen[size_t(e)]);
        for (int64_t head = h * per; head < (h + 1) * per; ++head) {
          const double* q = r.in[kQuery].f.data() + (at * s.q_heads + head) * s.depth;
          double* y = r.out[0].f.data() + (at * s.q_heads + head) * s.value_depth;
          for (int64_t d = 0; d < s.depth; ++d)
            for (int64_t e = 0; e < s.value_depth; ++e) y[e] += s.scale * q[d] * state[size_t(d * s.value_depth + e)];
        }
      }
      if (wants) std::copy(state.begin(), state.end(), r.out[1].f.begin() + first);
    }
  });
}

Cost cost_linear(const Problem& p) {
  const LinearAttentionShape s = linear_attention_shape(p);
  const int64_t per = s.q_heads / s.heads;
  const int64_t each = 2 * per + 2 + (p.has(kDecay) ? 1 : 0) + (p.has(kBeta) ? 2 : 0);
  return {.flops = saturated_product({s.batch, s.length, s.heads, s.depth, s.value_depth, each}),
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes(),
          .special = p.has(kDecay) ? p.input(kDecay).elements() : 0};
}

// ---- CausalConvWithState

enum ConvInput { kX, kWeight, kBias, kPast };

void infer_causal(Infer& i) {
  const Shape &x = i.shape(kX), &w = i.shape(kWeight);
  i.require(x.size() == 3, [&] { return fmt::format("'input' is {}; allowed: [batch, channels, length]", text(x)); });
  i.require(w.size() == 3 && same(w[0], x[1]) && w[1].is(1) && (!w[2].known() || w[2].value() >= 1), [&] {
    return fmt::format("'weight' is {}; allowed: [channels, 1, k], k from 1 on, with input {}", text(w), text(x));
  });
  if (i.has(kBias))
    i.require(i.rank(kBias) == 1 && same(i.dim(kBias, 0), x[1]),
              [&] { return fmt::format("'bias' is {}; allowed: [{}]", text(i.shape(kBias)), x[1].text()); });
  const Shape state = {x[0], x[1], w[2] - Dim(1)};
  if (i.has(kPast)) {
    const Shape& given = i.shape(kPast);
    bool fits = given.size() == 3;
    for (size_t a = 0; fits && a < 3; ++a) fits = same(given[a], state[a]);
    i.require(fits, [&] { return fmt::format("'past_state' is {}; allowed: {}", text(given), text(state)); });
  }
  const std::string activation = i.string("activation");
  i.require(activation == "none" || activation == "silu" || activation == "swish",
            [&] { return fmt::format("activation = '{}'; allowed: none, silu, swish", activation); });
  i.same_as(0, kX);
  if (i.wants(1)) i.output(1, i.dtype(kX), state);
}

/// The past, or zeros, and the input: a depthwise convolution without padding; what it ends with is the next past.
void decompose_causal(Builder& b) {
  V x = b.input(kX), w = b.input(kWeight);
  const Dim channels = b.shape(w)[0], width = b.shape(w)[2];
  if (!channels.known() || !width.known())
    fail(ErrorCode::kUnsupported, "unsupported: CausalConvWithState with weights of unknown shape");
  const int64_t past = width.value() - 1;
  Attributes last;
  last.set("axis", int64_t(2));
  if (past > 0)
    x = b.has(kPast) ? b.op("Concat", {b.input(kPast), x}, last)
                     : b.op("Pad", {x, b.integers_constant({0, 0, past, 0, 0, 0})});
  Attributes group;
  group.set("group", channels.value());
  std::vector<V> operands = {x, w};
  if (b.has(kBias)) operands.push_back(b.input(kBias));
  V y = b.op("Conv", operands, group);
  if (b.string("activation") != "none") y = b.op("Swish", {y});
  b.result(y);
  if (past > 0)
    b.result(b.op(
        "Slice", {x, b.integers_constant({-past}), b.integers_constant({int64_t(1) << 46}), b.integers_constant({2})}));
  else
    b.result(b.op("Slice", {x, b.integers_constant({0}), b.integers_constant({0}), b.integers_constant({2})}));
}

Cost cost_causal(const Problem& p) {
  const int64_t special = p.string("activation") == "none" ? 0 : p.output().elements();
  return {.flops = saturated_product({p.output().elements(), 2, p.input(kWeight).shape()[2]}) + 4 * special,
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes(),
          .special = special};
}

}  // namespace

LinearAttentionShape linear_attention_shape(const Problem& p) {
  return shape_of(p.input(kQuery).shape(), p.input(kValue).shape(), p.integer("q_num_heads"), p.integer("kv_num_heads"),
                  p.number("scale"));
}

constinit const OpSchema kLinearAttention = {
    .name = "LinearAttention",
    .family = "attention",
    .kind = OpKind::kContraction,
    .doc =
        "S = exp(decay) S, S += beta k (v - S^T k)^T or k v^T, output scale q^T S, position after position. Source: "
        "ONNX LinearAttention-27",
    .since = 27,
    .versions = {27},
    .inputs = {{"query", kTypes},
               {"key", kTypes, "query"},
               {"value", kTypes, "query"},
               optional_input("past_state", kTypes),
               optional_input("decay", kTypes, "query"),
               optional_input("beta", kTypes, "query")},
    .outputs = {{"output"}, {"present_state"}},
    .attributes = {{"chunk_size", 64},
                   {"kv_num_heads", AttributeType::kInt, kRequired},
                   {"q_num_heads", AttributeType::kInt, kRequired},
                   {"scale", 0.0},
                   {"update_rule", "gated_delta"}},
    .infer = infer_linear,
    .cost = cost_linear,
    .reference = reference_linear,
    .no_gradient = "an inference operator, with a state",
    .samples = {"query=f32[2,5,16] key=f32[2,5,16] value=f32[2,5,12] update_rule=linear q_num_heads=2 kv_num_heads=2",
                "query=f32[1,1,32] key=f32[1,1,8] value=f32[1,1,8] past_state=f32[1,1,8,8] update_rule=linear "
                "q_num_heads=4 kv_num_heads=1",
                "query=f32[2,0,16] key=f32[2,0,16] value=f32[2,0,16] past_state=f32[2,2,8,8] update_rule=linear "
                "q_num_heads=2 kv_num_heads=2",
                "query=f16[1,3,16] key=f16[1,3,16] value=f16[1,3,16] past_state=f32[1,2,8,8] update_rule=linear "
                "q_num_heads=2 kv_num_heads=2 scale=0.5"},
    .tolerance = Tolerance::contraction(),
};

constinit const OpSchema kCausalConvWithState = {
    .name = "CausalConvWithState",
    .family = "conv",
    .kind = OpKind::kContraction,
    .doc =
        "a depthwise convolution over the input and the k - 1 positions before it, which it hands on. Source: ONNX "
        "CausalConvWithState-27",
    .since = 27,
    .versions = {27},
    .inputs = {{"input", kFloats},
               {"weight", kFloats, "input"},
               optional_input("bias", kFloats, "input"),
               optional_input("past_state", kFloats, "input")},
    .outputs = {{"output"}, {"present_state"}},
    .attributes = {{"activation", "none"}},
    .infer = infer_causal,
    .cost = cost_causal,
    .decompose = {decompose_causal},
    .samples = {"input=f32[2,4,9] weight=f32[4,1,4] bias=f32[4] past_state=f32[2,4,3] activation=silu",
                "input=f32[2,3,2] weight=f32[3,1,5]", "input=f32[1,2,6] weight=f32[2,1,1] activation=swish",
                "input=f16[1,4,1] weight=f16[4,1,4] past_state=f16[1,4,3]"},
    .tolerance = Tolerance::contraction(),
};

std::span<const OpSchema* const> linear_attention_ops() {
  static constexpr const OpSchema* kOps[] = {&kCausalConvWithState, &kLinearAttention};
  return kOps;
}

}  // namespace ridgeline
