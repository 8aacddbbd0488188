// The standard's attention: heads in an axis of their own or packed, masks, a cache, windows, a cap on the scores.
// Source: ONNX Attention-23, -24 (nonpad_kv_seqlen), -25 (windows).
#include <algorithm>
#include <cmath>

#include "core/saturate.h"
#include "ops/attention.h"
#include "ops/catalogue.h"
#include "ops/common.h"

namespace ridgeline {
namespace {

enum Input { kQ, kK, kV, kMask, kPastKey, kPastValue, kValid };
enum Output { kY, kPresentKey, kPresentValue, kScores };

/// [batch, heads, length, depth] of a packed or unpacked operand.
template <typename T>
struct Heads {
  T batch, heads, length, depth;
};

Heads<Dim> heads_of(Infer& i, int input, std::string_view count) {
  const Shape& s = i.shape(input);
  const std::string_view name = i.op().inputs[input].name;
  i.require(s.size() == 3 || s.size() == 4,
            fmt::format("input '{}' is {}: [batch, heads, length, depth] or [batch, length, heads * depth] is wanted",
                        name, describe(i, input)));
  if (s.size() == 4) return {s[0], s[1], s[2], s[3]};
  const int64_t heads = i.integer(count);
  i.require(heads > 0, fmt::format("input '{}' is {}: attribute '{}' must say how many heads that is", name,
                                   describe(i, input), count));
  i.require(
      !s[2].known() || s[2].value() % heads == 0,
      fmt::format("input '{}' is {}: its last extent does not divide into {} heads", name, describe(i, input), heads));
  return {s[0], heads, s[1], floor_div(s[2], heads)};
}

bool same(const Dim& a, const Dim& b) { return !a.known() || !b.known() || a == b; }

void infer_attention(Infer& i) {
  const Heads<Dim> q = heads_of(i, kQ, "q_num_heads"), k = heads_of(i, kK, "kv_num_heads"),
                   v = heads_of(i, kV, "kv_num_heads");
  const std::string all =
      fmt::format("Q, K and V are {}, {} and {}: ", describe(i, kQ), describe(i, kK), describe(i, kV));
  i.require(i.rank(kQ) == i.rank(kK) && i.rank(kQ) == i.rank(kV), all + "equal ranks are wanted");
  i.require(same(q.batch, k.batch) && same(q.batch, v.batch), all + "the batches differ");
  i.require(same(q.depth, k.depth), all + "the depths of Q and K differ");
  i.require(same(k.length, v.length) && same(k.heads, v.heads), all + "K and V differ in length or heads");
  i.require(!q.heads.known() || !k.heads.known() || (k.heads.value() > 0 && q.heads.value() % k.heads.value() == 0),
            all + "the heads of K must divide those of Q");
  i.require(i.has(kPastKey) == i.has(kPastValue), "past_key and past_value go together");
  Dim total = k.length;
  if (i.has(kPastKey)) {
    i.require(!i.has(kValid), "past_key and nonpad_kv_seqlen exclude each other");
    i.require(i.rank(kPastKey) == 4 && i.rank(kPastValue) == 4,
              "past_key and past_value must be [batch, heads, length, depth]");
    i.require(same(i.dim(kPastKey, 1), k.heads) && same(i.dim(kPastKey, 3), k.depth) &&
                  same(i.dim(kPastValue, 1), v.heads) && same(i.dim(kPastValue, 3), v.depth) &&
                  same(i.dim(kPastKey, 2), i.dim(kPastValue, 2)),
              fmt::format("past_key {} and past_value {} do not fit K and V", describe(i, kPastKey),
                          describe(i, kPastValue)));
    total = total + i.dim(kPastKey, 2);
  }
  if (i.has(kValid)) {
    i.require(i.rank(kValid) == 1 && same(i.dim(kValid, 0), q.batch),
              fmt::format("nonpad_kv_seqlen is {}: one number for each of the batch items {} is wanted",
                          describe(i, kValid), text(Shape{q.batch})));
  }
  if (i.has(kMask)) {
    const Shape& mask = i.shape(kMask);
    const Shape scores = {q.batch, q.heads, q.length, total};
    bool fits = mask.size() <= 4;
    for (size_t a = 0; fits && a + 1 < mask.size(); ++a)
      fits = mask[a].is(1) || same(mask[a], scores[a + 4 - mask.size()]);
    fits = fits && (mask.empty() || !mask.back().known() || !total.known() ||
                    mask.back().value() <= total.value());  // shorter: the rest is masked
    i.require(fits,
              fmt::format("attn_mask is {}: it must broadcast to the scores {}", describe(i, kMask), text(scores)));
  }
  const int64_t mode = i.integer("qk_matmul_output_mode");
  i.require(mode >= 0 && mode <= 3, fmt::format("qk_matmul_output_mode = {}: allowed are 0 to 3", mode));
  if (i.rank(kQ) == 4)
    i.output(kY, i.dtype(kQ), {q.batch, q.heads, q.length, v.depth});
  else
    i.output(kY, i.dtype(kQ), {q.batch, q.length, q.heads * v.depth});
  if (i.wants(kPresentKey)) i.output(kPresentKey, i.dtype(kK), {k.batch, k.heads, total, k.depth});
  if (i.wants(kPresentValue)) i.output(kPresentValue, i.dtype(kV), {v.batch, v.heads, total, v.depth});
  if (i.wants(kScores)) i.output(kScores, i.dtype(kQ), {q.batch, q.heads, q.length, total});
}

/// An operand as [batch, heads, length, depth], the cache before it.
struct Operand4 {
  Heads<int64_t> h{};
  std::vector<double> data;
  const double* row(int64_t batch, int64_t head, int64_t at) const {
    return data.data() + ((batch * h.heads + head) * h.length + at) * h.depth;
  }
};

Operand4 unpacked(const Reference& c, int input, int past, int64_t heads) {
  const RefArray& x = c.in[size_t(input)];
  const bool packed = x.rank() == 3;
  const int64_t before = past >= 0 && c.has(past) ? c.in[size_t(past)].dim(2) : 0;
  Operand4 o;
  o.h = packed ? Heads<int64_t>{x.dim(0), heads, x.dim(1), x.dim(2) / heads}
               : Heads<int64_t>{x.dim(0), x.dim(1), x.dim(2), x.dim(3)};
  const int64_t own = o.h.length;
  o.h.length += before;
  o.data.resize(size_t(o.h.batch * o.h.heads * o.h.length * o.h.depth));
  double* to = o.data.data();
  for (int64_t b = 0; b < o.h.batch; ++b)
    for (int64_t head = 0; head < o.h.heads; ++head)
      for (int64_t t = 0; t < o.h.length; ++t)
        for (int64_t d = 0; d < o.h.depth; ++d) {
          if (t < before)
            *to++ = c.in[size_t(past)].f[size_t(((b * o.h.heads + head) * before + t) * o.h.depth + d)];
          else if (packed)
            *to++ = x.f[size_t(((b * own + t - before) * o.h.heads + head) * o.h.depth + d)];
          else
            *to++ = x.f[size_t(((b * o.h.heads + head) * own + t - before) * o.h.depth + d)];
        }
  return o;
}

/// What the mask says of a score: its addend, minus infinity where it is hidden.
double mask_at(const RefArray& mask, const Extents& at) {
  if (mask.rank() > 0 && mask.dim(-1) != 1 && at.back() >= mask.dim(-1)) return -INFINITY;
  const int64_t k = broadcast_index(mask.shape, at);
  if (mask.dtype != DType::kBool) return mask.number(k);
  return mask.i[size_t(k)] ? 0 : -INFINITY;
}

void attention_reference(Reference& c) {
  const Operand4 q = unpacked(c, kQ, -1, c.integer("q_num_heads")),
                 k = unpacked(c, kK, kPastKey, c.integer("kv_num_heads")),
                 v = unpacked(c, kV, kPastValue, c.integer("kv_num_heads"));
  if (c.wants(kPresentKey)) c.out[kPresentKey].f = k.data;
  if (c.wants(kPresentValue)) c.out[kPresentValue].f = v.data;
  const int64_t queries = q.h.length, keys = k.h.length, past = c.has(kPastKey) ? c.in[kPastKey].dim(2) : 0;
  const double scale = c.attributes->has("scale") ? c.number("scale") : 1 / std::sqrt(double(q.h.depth)),
               cap = c.number("softcap");
  const int64_t left = c.integer("left_window_size"), right = c.integer("right_window_size"),
                mode = c.integer("qk_matmul_output_mode");
  const bool causal = c.flag("is_causal"), packed = c.in[kQ].rank() == 3;
  c.parallel_for(q.h.batch * q.h.heads * queries, [&](int64_t begin, int64_t end) {
    std::vector<double> score(static_cast<size_t>(keys));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t query = row % queries, head = row / queries % q.h.heads, batch = row / queries / q.h.heads;
      const int64_t shared = head / (q.h.heads / k.h.heads);
      const int64_t valid = c.has(kValid) ? c.in[kValid].integer(batch) : keys;
      const int64_t place = query + (c.has(kValid) ? valid - queries : past);  // of the query among the keys
      double best = -INFINITY, sum = 0;
      auto keep = [&](int64_t key, double s, int64_t which) {
        if (c.wants(kScores) && mode == which) c.out[kScores].f[size_t(row * keys + key)] = s;
      };
      for (int64_t key = 0; key < keys; ++key) {
        double s = 0;
        for (int64_t d = 0; d < q.h.depth; ++d) s += q.row(batch, head, query)[d] * k.row(batch, shared, key)[d];
        s *= scale;
        keep(key, s, 0);
        if (cap != 0) s = cap * std::tanh(s / cap);
        keep(key, s, 1);
        if (c.has(kMask)) s += mask_at(c.in[kMask], {batch, head, query, key});
        const bool hidden = key >= valid || (causal && key > place) || (left >= 0 && key < place - left) ||
                            (right >= 0 && key > place + right);
        if (hidden) s = -INFINITY;
        keep(key, s, 2);
        score[size_t(key)] = s;
        if (s > best || std::isnan(s)) best = s;
      }
      for (double& s : score) sum += s = best == -INFINITY ? 0 : std::exp(s - best);
      double* y =
          c.out[kY].f.data() + (packed ? ((batch * queries + query) * q.h.heads + head) * v.h.depth : row * v.h.depth);
      for (int64_t key = 0; key < keys; ++key) {
        const double weight = sum == 0 ? 0 : score[size_t(key)] / sum;  // a query that sees no key gives 0
        keep(key, weight, 3);
        if (weight != 0)
          for (int64_t d = 0; d < v.h.depth; ++d) y[d] += weight * v.row(batch, shared, key)[d];
      }
    }
  });
}

Cost attention_cost(const Problem& p) {
  const Extents &q = p.input(kQ).shape(), &v = p.input(kV).shape();
  const bool packed = q.size() == 3;
  const int64_t heads = packed ? p.integer("q_num_heads") : q[1], kv_heads = packed ? p.integer("kv_num_heads") : v[1];
  const int64_t queries = packed ? q[1] : q[2], depth = packed ? q[2] / std::max<int64_t>(1, heads) : q[3];
  const int64_t value_depth = packed ? v[2] / std::max<int64_t>(1, kv_heads) : v[3];
  const int64_t own_keys = packed ? v[1] : v[2], keys = own_keys + (p.has(kPastKey) ? p.input(kPastKey).shape()[2] : 0);
  // Without the scores that the causal mask or a window hides (with nonpad_kv_seqlen it depends on its content).
  const bool causal = p.flag("is_causal");
  const int64_t left = p.integer("left_window_size"), right = p.integer("right_window_size"), past = keys - own_keys;
  int64_t seen = saturated_product({queries, keys});
  if ((causal || left >= 0 || right >= 0) && !p.has(kValid)) {
    if (causal || right >= 0) seen = seen_keys(past + 1 + (causal ? 0 : std::min(right, keys)), queries, keys);
    if (left >= 0) seen -= seen_keys(past - std::min(left, past + queries), queries, keys);
  }
  const int64_t scores = saturated_product({q[0], heads, seen});
  const bool cap = p.number("softcap") != 0;
  return {.flops = saturated_product({scores, 2 * depth + 2 * value_depth + 6 + p.has(kMask) + 3 * cap}),
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes(),
          .special = scores * (2 + cap)};
}

}  // namespace

constinit const OpSchema kAttention = {
    .name = "Attention",
    .family = "attention",
    .kind = OpKind::kContraction,
    .doc =
        "softmax(softcap(Q x K^T * scale) + mask) x V with shared heads, cache, causal mask and windows; a query that "
        "sees no key gives 0. Source: ONNX Attention-25.",
    .since = 25,
    .versions = {23, 24, 25},
    .inputs = {{"Q", kFloats},
               {"K", kFloats, "Q"},
               {"V", kFloats},
               {"attn_mask", kAll, "", true},
               {"past_key", kFloats, "K", true},
               {"past_value", kFloats, "V", true},
               {"nonpad_kv_seqlen", kInt64, "", true}},
    .outputs = {{"Y"}, {"present_key", true}, {"present_value", true}, {"qk_matmul_output", true}},
    .attributes = {{"is_causal", 0},
                   {"kv_num_heads", 0},
                   {"left_window_size", -1},
                   {"q_num_heads", 0},
                   {"qk_matmul_output_mode", 0},
                   {"right_window_size", -1},
                   {"scale", AttributeType::kFloat},
                   {"softcap", 0.0},
                   {"softmax_precision", AttributeType::kInt}},
    .infer = infer_attention,
    .cost = attention_cost,
    .reference = attention_reference,
    .no_gradient = "an inference operator, with a cache; ScaledDotProductAttention has one",
    .samples =
        {"Q=f32[1,2,7,16] K=f32[1,2,9,16] V=f32[1,2,9,12]",
         "Q=f32[2,5,24] K=f32[2,7,12] V=f32[2,7,12] q_num_heads=4 kv_num_heads=2 is_causal=1",
         "Q=f32[1,2,3,8] K=f32[1,2,4,8] V=f32[1,2,4,8] attn_mask=bool[3,4] softcap=2.0",
         "Q=f32[1,4,2,8] K=f32[1,2,2,8] V=f32[1,2,2,8] past_key=f32[1,2,5,8] past_value=f32[1,2,5,8] is_causal=1",
         "Q=f32[1,2,6,4] K=f32[1,2,6,4] V=f32[1,2,6,4] left_window_size=2 right_window_size=1",
         "Q=f32[0,2,3,8] K=f32[0,2,3,8] V=f32[0,2,3,8]",
         "Q=f16[1,2,9,16] K=f16[1,2,9,16] V=f16[1,2,9,16] attn_mask=f16[1,1,9,9]",
         "Q=f32[2,4,3,8] K=f32[2,2,7,8] V=f32[2,2,7,5] nonpad_kv_seqlen=i64{3,7} is_causal=1",
         "Q=f32[1,4,1,16] K=f32[1,2,1,16] V=f32[1,2,1,16] past_key=f32[1,2,30,16] past_value=f32[1,2,30,16] "
         "is_causal=1 outputs=3"},
    .tolerance = Tolerance::contraction(8),
};

std::span<const OpSchema* const> attention_standard_ops() {
  static constexpr const OpSchema* kOps[] = {&kAttention};
  return kOps;
}

}  // namespace ridgeline
