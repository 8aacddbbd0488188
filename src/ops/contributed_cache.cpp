// com.microsoft's attention over a cache of keys and values, and its rotary positions: the standard's RotaryEmbedding,
// TensorScatter (in place where the caller gives one buffer) and Attention. Source: ONNX Runtime's ContribOperators.md.
#include "ops/catalogue.h"
#include "ops/contributed.h"

namespace ridgeline {

using namespace contributed;

namespace {

constexpr TypeSet kReal = type_bit(DType::kF32) | type_bit(DType::kF16) | type_bit(DType::kBF16);
constexpr TypeSet kInt32 = type_bit(DType::kI32);
constexpr std::string_view kNoGradient = "an inference operator, with tables or a cache";
constexpr int64_t kMostHeads = int64_t(1) << 31;

// ---- RotaryEmbedding

namespace rotary {

enum Input { kX, kPositions, kCos, kSin };

/// Heads of a packed x; 0: x has an axis of them.
int64_t packed_heads(int64_t given, const Shape& x, const Shape& cos) {
  if (x.size() == 4) return 0;
  if (given > 0) return given;
  return x[2].known() && cos[1].known() && cos[1].value() > 0 ? x[2].value() / (2 * cos[1].value()) : 0;
}

void infer(Infer& i) {
  i.require(!i.flag("is_packed_batching"), "is_packed_batching (a ragged batch) is unsupported");
  i.require(i.number("scale") == 1, "scale other than 1 is unsupported");
  i.require(i.rank(kX) == 3 || i.rank(kX) == 4, [&] {
    return fmt::format("input is {}: [batch, length, width] or [batch, heads, length, depth]", describe(i, kX));
  });
  require_rank(i, kCos, 2, "[positions, depth / 2]");
  require_rank(i, kSin, 2, "[positions, depth / 2]");
  i.require(same(i.dim(kCos, 0), i.dim(kSin, 0)) && same(i.dim(kCos, 1), i.dim(kSin, 1)), "the tables differ in shape");
  const int64_t heads = i.integer("num_heads"), part = i.integer("rotary_embedding_dim");
  i.require(heads >= 0 && heads < kMostHeads && part >= 0 && part % 2 == 0 && part < kMostHeads,
            fmt::format("num_heads = {}, rotary_embedding_dim = {}", heads, part));
  i.require(part == 0 || heads > 0, "rotary_embedding_dim is given without num_heads");
  i.require(part == 0 || same(i.dim(kCos, 1), Dim(part / 2)),
            [&] { return fmt::format("rotary_embedding_dim = {}, the tables are {}", part, describe(i, kCos)); });
  const Shape& x = i.shape(kX);
  if (x.size() == 3 && x[2].known() && i.dim(kCos, 1).known()) {
    const int64_t each = heads > 0 ? x[2].value() / heads : 2 * i.dim(kCos, 1).value();
    i.require(each > 0 && x[2].value() % each == 0 && (heads == 0 || x[2].value() % heads == 0) &&
                  (part > 0 ? part <= each : 2 * i.dim(kCos, 1).value() == each),
              [&] {
                return fmt::format("input is {}, the tables are {}: heads do not fit", describe(i, kX),
                                   describe(i, kCos));
              });
  }
  const Shape& p = i.shape(kPositions);
  const Dim& length = x.size() == 3 ? x[1] : x[2];
  i.require((p.size() == 1 && same(p[0], Dim(1))) || (p.size() == 2 && same(p[0], x[0]) && same(p[1], length)),
            [&] { return fmt::format("position_ids is {}: [1] or [batch, length]", describe(i, kPositions)); });
  i.same_as(0, kX);
}

void decompose(Builder& b) {
  V x = b.input(kX), positions = b.input(kPositions);
  if (b.rank(positions) == 1) {  // from there on, for each of the batch
    V length = extent(b, x, b.rank(x) == 3 ? 1 : 2), batch = extent(b, x, 0);
    V row = positions + counted(b, length);
    positions = b.op("Expand", {row, b.op("Concat", {batch, length}, with({{"axis", int64_t(0)}}))});
  }
  Attributes attributes = with({{"interleaved", b.integer("interleaved")}});
  if (const int64_t heads = packed_heads(b.integer("num_heads"), b.shape(x), b.shape(b.input(kCos))); heads > 0)
    attributes.set("num_heads", heads);
  if (const int64_t part = b.integer("rotary_embedding_dim"); part > 0) attributes.set("rotary_embedding_dim", part);
  b.result(b.op("RotaryEmbedding", {x, b.input(kCos), b.input(kSin), positions}, std::move(attributes)));
}

}  // namespace rotary

// ---- GroupQueryAttention

namespace grouped {

enum Input {
  kQ,
  kK,
  kV,
  kPastKey,
  kPastValue,
  kLengths,  // of the keys of each batch item, less 1
  kTotal,
  kCos,
  kSin,
  kPositions,
  kAddend,
  kSink,
  kKeyScale,
  kValueScale,
  kQueryNorm,
  kKeyNorm
};

struct Form {
  Dim batch, length, depth;
  int64_t heads = 0, kv_heads = 0;
  bool packed = false;
};

Form form_of(const Infer& i) {
  Form f;
  f.heads = i.integer("num_heads"), f.kv_heads = i.integer("kv_num_heads");
  i.require(f.heads > 0 && f.kv_heads > 0 && f.heads < kMostHeads && f.heads % f.kv_heads == 0,
            fmt::format("num_heads = {}, kv_num_heads = {}: a multiple is wanted", f.heads, f.kv_heads));
  require_rank(i, kQ, 3, "[batch, length, width]");
  f.batch = i.dim(kQ, 0), f.length = i.dim(kQ, 1), f.packed = !i.has(kK);
  i.require(i.has(kK) == i.has(kV), "key and value go together");
  const Dim& width = i.dim(kQ, 2);
  const int64_t all = f.packed ? f.heads + 2 * f.kv_heads : f.heads;
  i.require(!width.known() || (width.value() > 0 && width.value() % all == 0),
            [&] { return fmt::format("query is {}: {} heads are wanted side by side", describe(i, kQ), all); });
  f.depth = floor_div(width, all);
  for (int input : {int(kK), int(kV)}) {
    if (!i.has(input)) continue;
    const Shape& s = i.shape(input);
    i.require(s.size() == 3 && same(s[0], f.batch) && same(s[1], f.length) && same(s[2], Dim(f.kv_heads) * f.depth),
              [&] {
                return fmt::format("input '{}' is {}: {} is wanted", i.op().inputs[input].name, describe(i, input),
                                   text(Shape{f.batch, f.length, Dim(f.kv_heads) * f.depth}));
              });
  }
  return f;
}

void refuse_what_is_not_there(const Infer& i) {
  const auto off = [&](bool wanted, std::string_view what) {
    i.require(!wanted, [&] { return std::string(what) + " is unsupported"; });
  };
  off(i.integer("smooth_softmax") > 0 || i.has(kSink), "smooth_softmax or head_sink (a further addend of the sum)");
  off(i.has(kKeyScale) || i.has(kValueScale) || i.string("k_quant_type") != "NONE" ||
          i.string("v_quant_type") != "NONE" || i.integer("kv_cache_bit_width") != 0,
      "a quantized cache");
  off(i.flag("sliding_window_cache"), "sliding_window_cache (a cache that is moved)");
  off(i.has(kQueryNorm) || i.has(kKeyNorm), "q_norm_weight or k_norm_weight");
  off(i.integer("qk_output") != 0 || i.wants(3), "its output 'output_qk'");
}

void infer(Infer& i) {
  refuse_what_is_not_there(i);
  const Form f = form_of(i);
  i.require(i.has(kPastKey) == i.has(kPastValue), "past_key and past_value go together");
  i.require(i.has(kLengths) && i.has(kTotal), "seqlens_k and total_sequence_length are wanted");
  const Dim counted = product(i.shape(kLengths)), single = product(i.shape(kTotal));
  i.require(same(counted, f.batch),
            [&] { return fmt::format("seqlens_k is {}: a number for each of the batch", describe(i, kLengths)); });
  i.require(!single.known() || single.is(1), "total_sequence_length: one number is wanted");
  if (i.flag("do_rotary")) {
    i.require(i.has(kCos) && i.has(kSin), "do_rotary without cos_cache and sin_cache");
    for (int table : {int(kCos), int(kSin)}) require_rank(i, table, 2, "[positions, depth / 2]");
    i.require(same(i.dim(kCos, 0), i.dim(kSin, 0)) && same(i.dim(kCos, 1), i.dim(kSin, 1)), "the tables differ");
    i.require(!f.depth.known() || !i.dim(kCos, 1).known() || 2 * i.dim(kCos, 1).value() <= f.depth.value(),
              [&] { return fmt::format("cos_cache is {}, a head {} deep", describe(i, kCos), f.depth.text()); });
  }
  if (i.has(kPositions))
    i.require(i.rank(kPositions) == 2 && same(i.dim(kPositions, 0), f.batch) && same(i.dim(kPositions, 1), f.length),
              [&] { return fmt::format("position_ids is {}: [batch, length] is wanted", describe(i, kPositions)); });
  Dim rows = f.length;
  i.output(0, i.dtype(kQ), {f.batch, f.length, Dim(f.heads) * f.depth});
  if (i.has(kPastKey)) {
    const Shape &k = i.shape(kPastKey), &v = i.shape(kPastValue);
    bool fits =
        k.size() == 4 && v.size() == 4 && same(k[0], f.batch) && same(k[1], Dim(f.kv_heads)) && same(k[3], f.depth);
    for (size_t a = 0; fits && a < 4; ++a) fits = same(k[a], v[a]);
    i.require(fits, [&] {
      return fmt::format("past_key is {}, past_value {}: [batch, {}, length, {}] is wanted", describe(i, kPastKey),
                         describe(i, kPastValue), f.kv_heads, f.depth.text());
    });
    rows = k[2];
    if (i.wants(1) || i.wants(2)) {  // the cache grows where it is no buffer with room for all
      const std::vector<Dim> total = i.need_values(kTotal);
      i.require(!total.empty(), "total_sequence_length is empty");
      const Dim& want = total[0];
      i.require(!want.known() || !rows.known() || !f.length.known() ||
                    (want.value() >= 0 && want.value() <= rows.value() + f.length.value()),
                [&] {
                  return fmt::format("total_sequence_length = {} with {} keys and {} in the cache", want.text(),
                                     f.length.text(), rows.text());
                });
      rows = rows == want || want == k[2] + f.length ? want : max(rows, want);
    }
  }
  for (int output : {1, 2})
    if (i.wants(output)) i.output(output, i.dtype(kQ), {f.batch, f.kv_heads, rows, f.depth});
}

/// [batch, length, heads * depth] as [batch, heads, length, depth].
V unpacked(Builder& b, V x, int64_t heads) { return b.transpose(b.reshape(x, {0, 0, heads, -1}), {0, 2, 1, 3}); }

V turned(Builder& b, V x, V positions, int64_t heads, const Dim& depth) {
  V cos = b.input(kCos);
  Attributes attributes = with({{"interleaved", b.integer("rotary_interleaved")}, {"num_heads", heads}});
  const Dim& pairs = b.shape(cos)[1];
  if (pairs.known() && depth.known() && 2 * pairs.value() != depth.value())
    attributes.set("rotary_embedding_dim", 2 * pairs.value());
  return b.op("RotaryEmbedding", {x, cos, b.input(kSin), positions}, std::move(attributes));
}

struct Cache {
  V rows, present;
};

/// The cache with the new rows from `start` on: in place where it has room for all, else longer by the new rows.
Cache extended(Builder& b, V past, V rows, V start) {
  const Dim before = b.shape(past)[2], length = b.shape(rows)[2];
  const ValueInfo& total = b.graph().value(b.input(kTotal).id).info;
  std::optional<Dim> want;
  if (total.values && total.values->size() == 1) want = (*total.values)[0];
  if (!want && total.constant && total.constant.elements() == 1) want = Dim(total.constant.to_i64()[0]);
  const bool grows_by_all = want && *want == before + length;
  const bool fits = want && !grows_by_all && max(before, *want) == before;
  V base = fits ? past : b.op("Concat", {past, rows}, with({{"axis", int64_t(2)}}));
  Cache cache;
  cache.rows = b.op("TensorScatter", {base, rows, start});
  cache.present = cache.rows;
  if (fits || grows_by_all) return cache;
  V end = b.op("Max", {extent(b, past, 2), b.reshape(b.cast(b.input(kTotal), DType::kI64), {1})});
  if (want && want->known() && before.known()) end = b.integers_constant({std::max(want->value(), before.value())});
  cache.present = b.op("Slice", {cache.rows, b.integers_constant({0}), end, b.integers_constant({2})});
  return cache;
}

void decompose(Builder& b) {
  const int64_t heads = b.integer("num_heads"), kv_heads = b.integer("kv_num_heads");
  V q = b.input(kQ), k, v;
  if (b.has(kK)) {
    k = b.input(kK), v = b.input(kV);
  } else {
    const Dim& width = b.shape(q)[2];
    if (!width.known()) fail(ErrorCode::kUnsupported, "GroupQueryAttention: a packed query of unknown width");
    const int64_t depth = width.value() / (heads + 2 * kv_heads);
    const std::vector<V> parts = split(b, q, {heads * depth, kv_heads * depth, kv_heads * depth}, 2);
    q = parts[0], k = parts[1], v = parts[2];
  }
  const Dim depth = floor_div(b.shape(q)[2], heads);
  V length = extent(b, q, 1);
  // A batch item's keys before these: how many there are then, less these; none in a first prompt, which may be padded
  // on the right.
  V all = b.reshape(b.cast(b.input(kLengths), DType::kI64), {-1}) + b.integers_constant({1});
  V start = b.op("Max", {all - length, b.integers_constant({0})});
  if (b.flag("do_rotary")) {
    V positions = b.has(kPositions) ? b.input(kPositions)
                                    : b.op("Unsqueeze", {start, b.integers_constant({1})}) + counted(b, length);
    q = turned(b, q, positions, heads, depth), k = turned(b, k, positions, kv_heads, depth);
  }
  q = unpacked(b, q, heads), k = unpacked(b, k, kv_heads), v = unpacked(b, v, kv_heads);
  Cache keys{k, k}, values{v, v};
  if (b.has(kPastKey)) {
    keys = extended(b, b.input(kPastKey), k, start);
    values = extended(b, b.input(kPastValue), v, start);
  }
  const bool causal = b.flag("causal");
  Attributes attributes = with({{"is_causal", int64_t(causal)}, {"softcap", b.number("softcap")}});
  if (const double scale = b.number("scale"); scale != 0) attributes.set("scale", scale);
  if (const int64_t window = b.integer("local_window_size"); window > 0) attributes.set("left_window_size", window - 1);
  std::vector<V> operands = {q, keys.rows, values.rows};
  operands.push_back(b.has(kAddend) ? b.input(kAddend) : V{});
  // Where there is a cache, rows behind the keys hold nothing. Causal queries find their place by it: the last of them
  // stands at start + length - 1, padded or not.
  if (b.has(kPastKey) || !causal) operands.insert(operands.end(), {V{}, V{}, causal ? start + length : all});
  while (!operands.back()) operands.pop_back();
  V y = b.op("Attention", operands, std::move(attributes));
  b.result(b.reshape(b.transpose(y, {0, 2, 1, 3}), {0, 0, -1}));
  b.result(keys.present);
  b.result(values.present);
}

}  // namespace grouped

}  // namespace

constinit const OpSchema kContributedRotaryEmbedding = {
    .name = "RotaryEmbedding",
    .domain = "com.microsoft",
    .family = "attention",
    .kind = OpKind::kOpaque,
    .doc =
        "the standard's RotaryEmbedding-23 with positions before the tables, or one position to start from. Source: "
        "ONNX Runtime RotaryEmbedding-1; Su et al., 2021.",
    .since = 1,
    .versions = {1},
    .inputs = {{"input", kReal},
               {"position_ids", kInt64},
               {"cos_cache", kReal, "input"},
               {"sin_cache", kReal, "input"}},
    .outputs = {{"output"}},
    .attributes =
        {{"interleaved", 0}, {"num_heads", 0}, {"rotary_embedding_dim", 0}, {"scale", 1.0}, {"is_packed_batching", 0}},
    .infer = rotary::infer,
    .cost = decomposed_cost,
    .decompose = {rotary::decompose},
    .no_gradient = kNoGradient,
    .samples = {"input=f32[2,5,24] position_ids=i64{2} cos_cache=f32[9,4] sin_cache=f32[9,4]",
                "input=f32[2,3,5,8] position_ids=i64[2,5] cos_cache=f32[9,4] sin_cache=f32[9,4] interleaved=1",
                "input=f16[1,2,32] position_ids=i64{0} cos_cache=f16[4,4] sin_cache=f16[4,4] num_heads=2 "
                "rotary_embedding_dim=8",
                "input=f32[0,5,24] position_ids=i64{0} cos_cache=f32[9,4] sin_cache=f32[9,4]"},
    .tolerance = Tolerance::reduction(4),
};

constinit const OpSchema kGroupQueryAttention = {
    .name = "GroupQueryAttention",
    .domain = "com.microsoft",
    .family = "attention",
    .kind = OpKind::kContraction,
    .doc =
        "causal attention with heads of keys and values that several of queries share, a cache, rotary positions, a "
        "window and a cap on the scores. Source: ONNX Runtime GroupQueryAttention-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"query", kReal},
               optional("key", kReal, "query"),
               optional("value", kReal, "query"),
               optional("past_key", kReal, "query"),
               optional("past_value", kReal, "query"),
               {"seqlens_k", kInt32},
               {"total_sequence_length", kInt32},
               optional("cos_cache", kReal, "query"),
               optional("sin_cache", kReal, "query"),
               optional("position_ids", kInt64),
               optional("attention_bias", kReal, "query"),
               optional("head_sink", kReal, "query"),
               optional("k_scale", kReal),
               optional("v_scale", kReal),
               optional("q_norm_weight", kReal),
               optional("k_norm_weight", kReal)},
    .outputs = {{"output"}, {"present_key", true}, {"present_value", true}, {"output_qk", true}},
    .attributes = {{"num_heads", AttributeType::kInt, kRequired},
                   {"kv_num_heads", AttributeType::kInt, kRequired},
                   {"scale", 0.0},
                   {"softcap", 0.0},
                   {"causal", 1},
                   {"do_rotary", 0},
                   {"rotary_interleaved", 0},
                   {"local_window_size", -1},
                   {"smooth_softmax", -1},
                   {"sliding_window_cache", 0},
                   {"qk_output", 0},
                   {"kv_cache_bit_width", 0},
                   {"k_quant_type", "NONE"},
                   {"v_quant_type", "NONE"},
                   {"qk_norm_epsilon", 1e-6},
                   {"q_norm_epsilon", 1e-6},
                   {"k_norm_epsilon", 1e-6}},
    .infer = grouped::infer,
    .cost = decomposed_cost,
    .decompose = {grouped::decompose},
    .no_gradient = kNoGradient,
    .samples = {"query=f32[2,5,16] key=f32[2,5,8] value=f32[2,5,8] seqlens_k=i32{4,2} total_sequence_length=i32{5} "
                "num_heads=4 kv_num_heads=2 outputs=3",
                "query=f32[1,1,32] past_key=f32[1,2,6,4] past_value=f32[1,2,6,4] seqlens_k=i32{6} "
                "total_sequence_length=i32{7} cos_cache=f32[9,2] sin_cache=f32[9,2] num_heads=4 kv_num_heads=2 "
                "do_rotary=1 outputs=3",
                "query=f32[2,1,16] key=f32[2,1,8] value=f32[2,1,8] past_key=f32[2,2,9,4] past_value=f32[2,2,9,4] "
                "seqlens_k=i32{5,3} total_sequence_length=i32{6} num_heads=4 kv_num_heads=2 local_window_size=3 "
                "softcap=2.0 outputs=3",
                "query=f16[1,4,16] key=f16[1,4,8] value=f16[1,4,8] seqlens_k=i32{3} total_sequence_length=i32{4} "
                "num_heads=2 kv_num_heads=1 outputs=3"},
    .tolerance = Tolerance::contraction(8),
};

std::span<const OpSchema* const> contributed_cache_ops() {
  static constexpr const OpSchema* kOps[] = {&kContributedRotaryEmbedding, &kGroupQueryAttention};
  return kOps;
}

}  // namespace ridgeline
