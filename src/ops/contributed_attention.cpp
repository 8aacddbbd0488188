// com.microsoft's Attention and MultiHeadAttention as the standard's Attention: projections before it, masks of several
// kinds as one that is added. Source: ONNX Runtime's ContribOperators.md.
#include "ops/catalogue.h"
#include "ops/contributed.h"

namespace ridgeline {

using namespace contributed;

namespace {

constexpr TypeSet kReal = type_bit(DType::kF32) | type_bit(DType::kF16) | type_bit(DType::kBF16);
constexpr TypeSet kInt32 = type_bit(DType::kI32);
constexpr std::string_view kNoGradient = "inference only in its standard; ScaledDotProductAttention has one";

/// What the scores [batch, heads, queries, keys] are of; `keys` with those of a cache.
struct Scores {
  Dim batch, heads, queries, keys;
};

void check_heads(const Infer& i) {
  i.require(i.integer("num_heads") > 0 && i.integer("num_heads") < (int64_t(1) << 31),
            fmt::format("num_heads = {}: at least 1 is wanted", i.integer("num_heads")));
}

Dim heads_of(const Infer& i, const Dim& width, std::string_view of) {
  const int64_t heads = i.integer("num_heads");
  i.require(!width.known() || width.value() % heads == 0,
            [&] { return fmt::format("{} {} wide does not divide into {} heads", of, width.text(), heads); });
  return floor_div(width, heads);
}

/// A mask of whole numbers: [batch] lengths, [2 * batch] ends and starts, or what stands for rows, keys or both.
void check_mask(const Infer& i, int input, const Scores& s, bool square) {
  if (!i.has(input)) return;
  const Shape& m = i.shape(input);
  bool fits = false;
  if (m.size() == 1) {
    const Dim twice = s.batch + s.batch;
    i.require(!(m[0] == Dim(3) * s.batch + Dim(2)) || m[0] == s.batch || m[0] == twice,
              [&] { return fmt::format("'{}' of 3 * batch + 2 numbers is unsupported", i.op().inputs[input].name); });
    fits = same(m[0], s.batch) || same(m[0], twice);
  } else if (m.size() == 2) {
    fits = same(m[0], s.batch) && same(m[1], s.keys);
  } else if (m.size() == 3) {
    fits = same(m[0], s.batch) && same(m[1], s.queries) && same(m[2], s.keys);
  } else if (m.size() == 4 && square) {
    fits = same(m[0], s.batch) && same(m[1], Dim(1)) && same(m[2], m[3]) &&
           (!m[3].known() || !s.keys.known() || m[3].value() >= s.keys.value());
  }
  i.require(fits, [&] {
    return fmt::format("input '{}' is {}: [batch], [2 * batch], [batch, keys]{} of scores {} is wanted",
                       i.op().inputs[input].name, describe(i, input),
                       square ? ", [batch, queries, keys] or [batch, 1, most, most]" : " or [batch, queries, keys]",
                       text(Shape{s.batch, s.heads, s.queries, s.keys}));
  });
}

void check_addend(const Infer& i, int input, const Scores& s) {
  if (!i.has(input)) return;
  const Shape& m = i.shape(input);
  const bool fits = m.size() == 4 && (m[0].is(1) || same(m[0], s.batch)) && (m[1].is(1) || same(m[1], s.heads)) &&
                    same(m[2], s.queries) && same(m[3], s.keys);
  i.require(fits, [&] {
    return fmt::format("attention_bias is {}: scores of {} are wanted", describe(i, input),
                       text(Shape{s.batch, s.heads, s.queries, s.keys}));
  });
}

/// As an addend to the scores: mask_filter_value where a key is hidden. `keys`: how many, i64[1]; `past`: of the cache.
V mask_addend(Builder& b, V mask, V keys, V queries, V past, const Dim& batch, V like) {
  V none = b.constant(0, like), filter = b.number_like("mask_filter_value", like);
  const Shape shape = b.shape(mask);
  const auto from = [&](V seen, std::vector<int64_t> axes) {
    return b.op("Unsqueeze", {b.op("Where", {seen, none, filter}), b.integers_constant(std::move(axes))});
  };
  if (shape.size() == 1) {
    V place = b.op("Unsqueeze", {counted(b, keys), b.integers_constant({0})});  // [1, keys]
    const auto column = [&](V x) { return b.op("Unsqueeze", {b.cast(x, DType::kI64), b.integers_constant({1})}); };
    if (shape[0] == batch) return from(b.op("Less", {place, column(mask)}), {1, 2});
    const std::vector<V> ends = b.ops("Split", {mask}, 2, with({{"axis", int64_t(0)}, {"num_outputs", int64_t(2)}}));
    return from(b.op("And", {b.op("Less", {place, column(ends[0])}), b.op("GreaterOrEqual", {place, column(ends[1])})}),
                {1, 2});
  }
  V part = mask;
  if (shape.size() == 4) {  // of all positions: the rows of these queries, the columns of these keys
    part = b.op("Slice", {mask, past, past + queries, b.integers_constant({2})});
    part = b.op("Slice", {part, b.integers_constant({0}), keys, b.integers_constant({3})});
  }
  V seen = b.op("Greater", {part, b.constant(0, part)});
  if (shape.size() == 2) return from(seen, {1, 2});
  if (shape.size() == 3) return from(seen, {1});
  return b.op("Where", {seen, none, filter});
}

/// [batch, length, heads * depth] as [batch, heads, length, depth].
V unpacked_heads(Builder& b, V x, int64_t heads) { return b.transpose(b.reshape(x, {0, 0, heads, -1}), {0, 2, 1, 3}); }

struct Operands {
  V q, k, v, past_key, past_value;
  V mask, addend;  // of whole numbers, and added as it is
};

struct Attended {
  V y, present_key, present_value, weights;
};

/// The standard's operator on operands that are all packed, or keys and values with an axis of heads.
Attended attend(Builder& b, Operands o) {
  const int64_t heads = b.integer("num_heads");
  const Dim batch = b.shape(o.q)[0];
  const bool unpacked = b.rank(o.k) == 4;
  V own = extent(b, o.k, unpacked ? 2 : 1), queries = extent(b, o.q, 1);
  V past = o.past_key ? extent(b, o.past_key, 2) : b.integers_constant({0});
  V addend = o.addend;
  if (o.mask) {
    V keys = o.past_key ? past + own : own;
    V hidden = mask_addend(b, o.mask, keys, queries, past, batch, o.q);
    addend = addend ? addend + hidden : hidden;
  }
  Attended result;
  if (!o.past_key) {  // what a cache would be is made apart: where nobody wants it, nobody makes it
    result.present_key = unpacked ? o.k : unpacked_heads(b, o.k, heads);
    result.present_value = unpacked ? o.v : unpacked_heads(b, o.v, heads);
  }
  if (unpacked) o.q = unpacked_heads(b, o.q, heads);
  Attributes attributes = with({{"is_causal", b.integer("unidirectional")}});
  if (!unpacked) attributes.set("q_num_heads", heads), attributes.set("kv_num_heads", heads);
  if (const double scale = b.number("scale"); scale != 0) attributes.set("scale", scale);
  std::vector<V> operands = {o.q, o.k, o.v, addend, o.past_key, o.past_value};
  while (!operands.back()) operands.pop_back();
  const std::vector<V> out = b.ops("Attention", operands, o.past_key ? 3 : 1, attributes);
  result.y = out[0];
  if (unpacked) result.y = b.reshape(b.transpose(out[0], {0, 2, 1, 3}), {0, 0, -1});
  if (o.past_key) result.present_key = out[1], result.present_value = out[2];
  attributes.set("qk_matmul_output_mode", int64_t(3));
  result.weights = b.ops("Attention", operands, 4, std::move(attributes))[3];
  return result;
}

// ---- Attention

namespace projected {

enum Input { kX, kWeights, kBias, kMask, kPast, kAddend, kPastLength };

struct Widths {
  Dim q, k, v;
};

Widths widths_of(const std::vector<int64_t>& given, const Dim& all) {
  if (given.size() == 3) return {given[0], given[1], given[2]};
  const Dim third = floor_div(all, 3);
  return {third, third, third};
}

void infer(Infer& i) {
  check_heads(i);
  i.require(!i.flag("do_rotary"), "do_rotary is unsupported: write it as RotaryEmbedding and MultiHeadAttention");
  i.require(!i.flag("past_present_share_buffer") && !i.has(kPastLength),
            "past_present_share_buffer and past_sequence_length (one buffer before and after) are unsupported");
  require_rank(i, kX, 3, "[batch, length, width]");
  require_rank(i, kWeights, 2, "[width, q + k + v]");
  const Dim& all = i.dim(kWeights, 1);
  i.require(same(i.dim(kX, 2), i.dim(kWeights, 0)),
            [&] { return fmt::format("input is {}, weights {}", describe(i, kX), describe(i, kWeights)); });
  const std::vector<int64_t> given = i.integers("qkv_hidden_sizes");
  i.require(given.empty() || given.size() == 3, "qkv_hidden_sizes: three numbers are wanted");
  for (const int64_t width : given)
    i.require(width > 0 && width < (int64_t(1) << 40), "qkv_hidden_sizes: numbers above 0 are wanted");
  i.require(given.empty() || given[0] == given[1], "qkv_hidden_sizes: those of Q and K differ");
  const Widths w = widths_of(given, all);
  i.require(same(w.q + w.k + w.v, all), [&] {
    return fmt::format("weights are {}: their columns do not divide into Q, K and V", describe(i, kWeights));
  });
  if (i.has(kBias))
    i.require(i.rank(kBias) == 1 && same(i.dim(kBias, 0), all),
              [&] { return fmt::format("bias is {}, weights {}", describe(i, kBias), describe(i, kWeights)); });
  const Dim depth = heads_of(i, w.k, "K"), value_depth = heads_of(i, w.v, "V");
  Dim keys = i.dim(kX, 1);
  if (i.has(kPast)) {
    const Shape& past = i.shape(kPast);
    i.require(past.size() == 5 && same(past[0], Dim(2)) && same(past[1], i.dim(kX, 0)) &&
                  same(past[2], Dim(i.integer("num_heads"))) && same(past[4], depth) && same(depth, value_depth),
              [&] { return fmt::format("past is {}: [2, batch, heads, length, depth]", describe(i, kPast)); });
    keys = keys + past[3];
  }
  const Scores s{i.dim(kX, 0), i.integer("num_heads"), i.dim(kX, 1), keys};
  check_mask(i, kMask, s, true);
  check_addend(i, kAddend, s);
  i.output(0, i.dtype(kX), {i.dim(kX, 0), i.dim(kX, 1), w.v});
  if (!i.wants(1)) return;
  i.require(same(depth, value_depth), "its output 'present' with V of another width than K is unsupported");
  i.output(1, i.dtype(kX), {2, s.batch, s.heads, keys, depth});
}

void decompose(Builder& b) {
  V x = b.matmul(b.input(kX), b.input(kWeights));
  if (b.has(kBias)) x = x + b.input(kBias);
  const Widths w = widths_of(b.integers("qkv_hidden_sizes"), b.shape(x)[2]);
  if (!w.q.known()) fail(ErrorCode::kUnsupported, "Attention: weights of unknown width");
  const std::vector<V> parts = split(b, x, {w.q.value(), w.k.value(), w.v.value()}, 2);
  Operands o{.q = parts[0], .k = parts[1], .v = parts[2]};
  if (b.has(kPast)) {
    const auto half = [&](int64_t at) {
      return b.op("Gather", {b.input(kPast), b.reshape(b.integers_constant({at}), {})}, with({{"axis", int64_t(0)}}));
    };
    o.past_key = half(0), o.past_value = half(1);
  }
  if (b.has(kMask)) o.mask = b.input(kMask);
  if (b.has(kAddend)) o.addend = b.input(kAddend);
  const Attended a = attend(b, o);
  b.result(a.y);
  if (w.q.value() != w.v.value()) return;
  const auto first = [&](V v) { return b.op("Unsqueeze", {v, b.integers_constant({0})}); };
  b.result(b.op("Concat", {first(a.present_key), first(a.present_value)}, with({{"axis", int64_t(0)}})));
}

}  // namespace projected

// ---- MultiHeadAttention

namespace several {

enum Input { kQ, kK, kV, kBias, kMask, kAddend, kPastKey, kPastValue, kPastLength, kBeams };

struct Form {
  Dim batch, queries, own, depth, value_depth;  // own: keys beside those of a cache
  bool packed_all = false, packed_pair = false, unpacked = false;
};

Form form_of(const Infer& i) {
  Form f;
  const int64_t heads = i.integer("num_heads");
  const Shape& q = i.shape(kQ);
  f.packed_all = q.size() == 5;
  i.require(f.packed_all || q.size() == 3, [&] {
    return fmt::format("query is {}: [batch, length, width] or [batch, length, heads, 3, depth]", describe(i, kQ));
  });
  f.batch = q[0], f.queries = q[1];
  if (f.packed_all) {
    i.require(same(q[2], Dim(heads)) && same(q[3], Dim(3)) && !i.has(kK) && !i.has(kV), [&] {
      return fmt::format("query is {}: [batch, length, {}, 3, depth] without key and value", describe(i, kQ), heads);
    });
    f.own = q[1], f.depth = f.value_depth = q[4];
    return f;
  }
  f.depth = heads_of(i, q[2], "query");
  i.require(i.has(kK), "query alone: [batch, length, heads, 3, depth] or a key is wanted");
  const Shape& k = i.shape(kK);
  f.packed_pair = k.size() == 5, f.unpacked = k.size() == 4;
  if (f.packed_pair) {
    i.require(
        same(k[0], f.batch) && same(k[2], Dim(heads)) && same(k[3], Dim(2)) && same(k[4], f.depth) && !i.has(kV),
        [&] { return fmt::format("key is {}: [batch, length, {}, 2, depth] without value", describe(i, kK), heads); });
    f.own = k[1], f.value_depth = f.depth;
    return f;
  }
  i.require(i.has(kV), "a key without a value");
  const Shape& v = i.shape(kV);
  const std::string both =
      fmt::format("query, key and value are {}, {} and {}", describe(i, kQ), describe(i, kK), describe(i, kV));
  i.require(k.size() == v.size() && (k.size() == 3 || k.size() == 4), both + ": equal ranks of 3 or 4 are wanted");
  const size_t length = f.unpacked ? 2 : 1;
  i.require(same(k[0], f.batch) && same(v[0], f.batch) && same(k[length], v[length]),
            both + ": batches or lengths differ");
  f.own = k[length];
  if (f.unpacked) {
    i.require(same(k[1], Dim(heads)) && same(v[1], Dim(heads)) && same(k[3], f.depth), both + ": heads do not fit");
    f.value_depth = v[3];
  } else {
    i.require(same(k[2], q[2]), both + ": the widths of query and key differ");
    f.value_depth = heads_of(i, v[2], "value");
  }
  return f;
}

void infer(Infer& i) {
  check_heads(i);
  i.require(!i.has(kPastLength) && !i.has(kBeams),
            "past_sequence_length and cache_indirection (one buffer before and after, beams) are unsupported");
  const Form f = form_of(i);
  const int64_t heads = i.integer("num_heads");
  if (i.has(kBias)) {
    const Dim width = Dim(heads) * (f.depth + f.depth + f.value_depth);
    i.require(i.rank(kBias) == 1 && same(i.dim(kBias, 0), width),
              [&] { return fmt::format("bias is {}: [{}] is wanted", describe(i, kBias), width.text()); });
  }
  Dim keys = f.own;
  i.require(i.has(kPastKey) == i.has(kPastValue), "past_key and past_value go together");
  if (i.has(kPastKey)) {
    i.require(!f.unpacked, "past_key beside a key with an axis of heads is unsupported");
    const Shape &k = i.shape(kPastKey), &v = i.shape(kPastValue);
    i.require(
        k.size() == 4 && v.size() == 4 && same(k[0], f.batch) && same(k[1], Dim(heads)) && same(k[3], f.depth) &&
            same(v[3], f.value_depth) && same(k[2], v[2]),
        [&] { return fmt::format("past_key is {}, past_value {}", describe(i, kPastKey), describe(i, kPastValue)); });
    keys = keys + k[2];
  }
  const Scores s{f.batch, heads, f.queries, keys};
  check_mask(i, kMask, s, false);
  check_addend(i, kAddend, s);
  i.output(0, i.dtype(kQ), {f.batch, f.queries, Dim(heads) * f.value_depth});
  if (i.wants(1)) i.output(1, i.dtype(kQ), {f.batch, heads, keys, f.depth});
  if (i.wants(2)) i.output(2, i.dtype(kQ), {f.batch, heads, keys, f.value_depth});
  if (i.wants(3)) i.output(3, i.dtype(kQ), {f.batch, heads, f.queries, keys});
}

void decompose(Builder& b) {
  const auto part = [&](V x, int64_t at) {  // [batch, length, heads, parts, depth]: one of the parts, packed
    V one = b.op("Gather", {x, b.reshape(b.integers_constant({at}), {})}, with({{"axis", int64_t(3)}}));
    return b.reshape(one, {0, 0, -1});
  };
  Operands o;
  if (V q = b.input(kQ); b.rank(q) == 5) {
    o.q = part(q, 0), o.k = part(q, 1), o.v = part(q, 2);
  } else if (V k = b.input(kK); b.rank(k) == 5) {
    o.q = q, o.k = part(k, 0), o.v = part(k, 1);
  } else {
    o.q = q, o.k = k, o.v = b.input(kV);
  }
  if (b.has(kBias)) {
    const Dim &width = b.shape(o.q)[2], all = b.shape(b.input(kBias))[0];
    if (!width.known() || !all.known()) fail(ErrorCode::kUnsupported, "MultiHeadAttention: bias of unknown width");
    const int64_t w = width.value();
    const std::vector<V> bias = split(b, b.input(kBias), {w, w, all.value() - 2 * w}, 0);
    o.q = o.q + bias[0];
    if (b.rank(o.k) == 3) o.k = o.k + bias[1], o.v = o.v + bias[2];  // else they come with theirs
  }
  if (b.has(kPastKey)) o.past_key = b.input(kPastKey), o.past_value = b.input(kPastValue);
  if (b.has(kMask)) o.mask = b.input(kMask);
  if (b.has(kAddend)) o.addend = b.input(kAddend);
  const Attended a = attend(b, o);
  for (V v : {a.y, a.present_key, a.present_value, a.weights}) b.result(v);
}

}  // namespace several

}  // namespace

constinit const OpSchema kContributedAttention = {
    .name = "Attention",
    .domain = "com.microsoft",
    .family = "attention",
    .kind = OpKind::kContraction,
    .doc =
        "input x weights + bias, taken apart into Q, K and V of several heads, and their attention, with masks, a "
        "cache and an addend. Source: ONNX Runtime Attention-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"input", kReal},
               {"weights", kReal, "input"},
               optional("bias", kReal, "input"),
               optional("mask_index", kInt32),
               optional("past", kReal, "input"),
               optional("attention_bias", kReal, "input"),
               optional("past_sequence_length", kInt32)},
    .outputs = {{"output"}, {"present", true}},
    .attributes = {{"num_heads", AttributeType::kInt, kRequired},
                   {"unidirectional", 0},
                   {"qkv_hidden_sizes", AttributeType::kInts},
                   {"scale", 0.0},
                   {"mask_filter_value", -10000.0},
                   {"do_rotary", 0},
                   {"rotary_embedding_dim", 0},
                   {"past_present_share_buffer", 0}},
    .infer = projected::infer,
    .cost = decomposed_cost,
    .decompose = {projected::decompose},
    .no_gradient = kNoGradient,
    .samples = {"input=f32[2,5,12] weights=f32[12,24] bias=f32[24] num_heads=2",
                "input=f32[2,5,12] weights=f32[12,24] bias=f32[24] mask_index=i32{3,5} num_heads=2",
                "input=f32[2,5,12] weights=f32[12,24] mask_index=i32{5,4,1,0} num_heads=4 unidirectional=1",
                "input=f32[2,5,12] weights=f32[12,20] bias=f32[20] num_heads=2 qkv_hidden_sizes=8,8,4 scale=0.3",
                "input=f32[1,3,12] weights=f32[12,24] past=f32[2,1,2,4,4] mask_index=i32[1,7] num_heads=2 "
                "unidirectional=1 outputs=2",
                "input=f32[2,3,8] weights=f32[8,24] mask_index=i32[2,3,3] attention_bias=f32[1,2,3,3] num_heads=2",
                "input=f32[0,3,8] weights=f32[8,24] num_heads=2", "input=f16[1,3,8] weights=f16[8,24] num_heads=1"},
    .tolerance = Tolerance::contraction(8),
};

constinit const OpSchema kMultiHeadAttention = {
    .name = "MultiHeadAttention",
    .domain = "com.microsoft",
    .family = "attention",
    .kind = OpKind::kContraction,
    .doc =
        "attention of several heads, Q, K and V apart or packed, with a bias, masks, a cache and an addend. Source: "
        "ONNX Runtime MultiHeadAttention-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"query", kReal},
               optional("key", kReal, "query"),
               optional("value", kReal, "query"),
               optional("bias", kReal, "query"),
               optional("key_padding_mask", kInt32),
               optional("attention_bias", kReal, "query"),
               optional("past_key", kReal, "query"),
               optional("past_value", kReal, "query"),
               optional("past_sequence_length", kInt32),
               optional("cache_indirection", kInt32)},
    .outputs = {{"output"}, {"present_key", true}, {"present_value", true}, {"qk", true}},
    .attributes = {{"num_heads", AttributeType::kInt, kRequired},
                   {"unidirectional", 0},
                   {"scale", 0.0},
                   {"mask_filter_value", -10000.0}},
    .infer = several::infer,
    .cost = decomposed_cost,
    .decompose = {several::decompose},
    .no_gradient = kNoGradient,
    .samples = {"query=f32[2,5,8] key=f32[2,7,8] value=f32[2,7,12] num_heads=2",
                "query=f32[2,5,8] key=f32[2,5,8] value=f32[2,5,8] bias=f32[24] key_padding_mask=i32[2,5] num_heads=4",
                "query=f32[2,5,2,3,4] num_heads=2 unidirectional=1", "query=f32[2,5,8] key=f32[2,3,2,2,4] num_heads=2",
                "query=f32[1,2,8] key=f32[1,2,4,4] value=f32[1,2,4,4] bias=f32[24] num_heads=2",
                "query=f32[1,2,8] key=f32[1,2,8] value=f32[1,2,8] past_key=f32[1,2,3,4] past_value=f32[1,2,3,4] "
                "num_heads=2 attention_bias=f32[1,1,2,5] outputs=3",
                "query=f32[2,3,8] key=f32[2,3,8] value=f32[2,3,8] key_padding_mask=i32{1,3} num_heads=2 outputs=4",
                "query=f32[0,3,8] key=f32[0,3,8] value=f32[0,3,8] num_heads=2",
                "query=f16[1,3,8] key=f16[1,3,8] value=f16[1,3,8] num_heads=2"},
    .tolerance = Tolerance::contraction(8),
};

std::span<const OpSchema* const> contributed_attention_ops() {
  static constexpr const OpSchema* kOps[] = {&kContributedAttention, &kMultiHeadAttention};
  return kOps;
}

}  // namespace ridgeline
