// Scaled dot-product attention as one operator. Source: Vaswani et al., 2017; ONNX Attention-23 without its cache.
#include <cmath>

#include "core/saturate.h"
#include "ops/attention.h"
#include "ops/catalogue.h"
#include "ops/common.h"

namespace ridgeline {
namespace {

constexpr int kQ = 0, kK = 1, kV = 2, kMask = 3;

void infer_attention(Infer& i) {
  const int rank = i.rank(kQ);
  i.require(rank == 3 || rank == 4, "q is " + describe(i, kQ) + ": [batch, S, D] or [batch, heads, S, D] is wanted");
  i.require(i.rank(kK) == rank && i.rank(kV) == rank,
            fmt::format("q, k and v are {}, {} and {}: equal ranks are wanted", describe(i, kQ), describe(i, kK),
                        describe(i, kV)));
  auto same = [&](const Dim& a, const Dim& b) { return !a.known() || !b.known() || a == b; };
  const std::string all =
      fmt::format("q, k and v are {}, {} and {}: ", describe(i, kQ), describe(i, kK), describe(i, kV));
  i.require(same(i.dim(kQ, rank - 1), i.dim(kK, rank - 1)), all + "the last extents of q and k differ");
  i.require(same(i.dim(kK, rank - 2), i.dim(kV, rank - 2)), all + "k and v have different lengths");
  i.require(same(i.dim(kQ, 0), i.dim(kK, 0)) && same(i.dim(kQ, 0), i.dim(kV, 0)), all + "the batches differ");
  if (rank == 4) {
    const Dim &heads = i.dim(kQ, 1), &shared = i.dim(kK, 1);
    i.require(same(shared, i.dim(kV, 1)), all + "k and v have different heads");
    const bool divides =
        !heads.known() || !shared.known() || (shared.value() > 0 ? heads.value() % shared.value() == 0 : heads.is(0));
    i.require(divides, all + "the heads of k must divide those of q");
  }
  Shape out = i.shape(kQ);
  out.back() = i.shape(kV).back();
  if (i.has(kMask)) {
    Shape scores = i.shape(kQ);
    scores.back() = i.dim(kK, rank - 2);
    const Shape& mask = i.shape(kMask);
    bool fits = mask.size() <= scores.size();
    for (size_t a = 0; fits && a < mask.size(); ++a) {
      const Dim& want = scores[a + scores.size() - mask.size()];
      fits = mask[a].is(1) || same(mask[a], want);
    }
    i.require(fits, fmt::format("mask is {}: it must broadcast to the scores {}", describe(i, kMask), text(scores)));
  }
  i.output(0, i.dtype(kQ), out);
}

/// Extents of a problem, whatever its rank.
struct Heads {
  int64_t batch, heads, kv_heads, queries, keys, depth, value_depth;
  explicit Heads(const Extents& q, const Extents& k, const Extents& v) {
    const size_t rank = q.size();
    batch = q[0], heads = rank == 4 ? q[1] : 1, kv_heads = rank == 4 ? k[1] : 1;
    queries = q[rank - 2], depth = q[rank - 1], keys = k[rank - 2], value_depth = v[rank - 1];
  }
};

void attention_reference(Reference& c) {
  const RefArray &q = c.in[kQ], &k = c.in[kK], &v = c.in[kV];
  const Heads h(q.shape, k.shape, v.shape);
  const double scale = c.number("scale");
  const bool causal = c.flag("causal");
  Extents score_shape = q.shape;
  score_shape.back() = h.keys;
  c.parallel_for(h.batch * h.heads * h.queries, [&](int64_t begin, int64_t end) {
    std::vector<double> weights(static_cast<size_t>(h.keys));
    for (int64_t row = begin; row < end; ++row) {
      const int64_t query = row % h.queries, head = row / h.queries % h.heads, item = row / h.queries / h.heads;
      const int64_t source =
          item * h.kv_heads + (h.heads ? head * h.kv_heads / h.heads : 0);  // the head of k and v that serves this one
      double best = -INFINITY;
      Extents at = q.shape.size() == 4 ? Extents{item, head, query, 0} : Extents{item, query, 0};
      for (int64_t key = 0; key < h.keys; ++key) {
        double score = 0;
        for (int64_t d = 0; d < h.depth; ++d)
          score += q.f[size_t(row * h.depth + d)] * k.f[size_t((source * h.keys + key) * h.depth + d)];
        score *= scale;
        at.back() = key;
        if (c.has(kMask)) score += c.in[kMask].f[size_t(broadcast_index(c.in[kMask].shape, at))];
        if (causal && key > h.keys - h.queries + query) score = -INFINITY;
        weights[size_t(key)] = score;
        if (score > best || std::isnan(score)) best = score;
      }
      double sum = 0;
      for (double& w : weights) sum += w = std::exp(w - best);
      for (int64_t d = 0; d < h.value_depth; ++d) {
        double y = 0;
        for (int64_t key = 0; key < h.keys; ++key)
          y += weights[size_t(key)] * v.f[size_t((source * h.keys + key) * h.value_depth + d)];
        c.out[0].f[size_t(row * h.value_depth + d)] = h.keys ? y / sum : 0;  // no keys: an empty sum
      }
    }
  });
}

Cost attention_cost(const Problem& p) {
  const Heads h(p.input(kQ).shape(), p.input(kK).shape(), p.input(kV).shape());
  // Causal: no algorithm needs the hidden ones.
  const int64_t seen =
      p.flag("causal") ? seen_keys(h.keys - h.queries + 1, h.queries, h.keys) : saturated_product({h.queries, h.keys});
  const int64_t scores = saturated_product({h.batch, h.heads, seen});
  // Two products; scale, mask, maximum, subtract, exponential, sum, divide on each score.
  return {.flops = saturated_product({scores, 2 * h.depth + 2 * h.value_depth + 6 + p.has(kMask)}),
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes(),
          .special = 2 * scores};
}

// ---- in smaller operators

V swap_last(Builder& b, V v) {
  std::vector<int64_t> perm(size_t(b.rank(v)));
  for (size_t a = 0; a < perm.size(); ++a) perm[a] = int64_t(a);
  std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
  return b.transpose(v, perm);
}

/// k or v with each head repeated, where several heads of q share it.
V shared_heads(Builder& b, V v) {
  const Shape &q = b.shape(b.input(kQ)), own = b.shape(v);
  if (q.size() == 3 || !q[1].known() || !own[1].known() || q[1] == own[1] || own[1].is(0)) return v;
  const int64_t times = q[1].value() / own[1].value();
  V wide = b.op("Unsqueeze", {v, b.integers_constant({2})});
  wide = b.op("Expand", {wide, b.integers_constant({1, 1, times, 1, 1})});
  // [batch, kv_heads, times, T, D] to [batch, heads, T, D]: the last two extents are not known before the shapes are
  // bound.
  V shape = b.op("Shape", {v});
  V ends = b.op("Gather", {shape, b.integers_constant({2, 3})}),
    first = b.op("Gather", {shape, b.integers_constant({0})});
  Attributes concat;
  concat.set("axis", int64_t(0));
  return b.op("Reshape", {wide, b.op("Concat", {first, b.integers_constant({q[1].value()}), ends}, concat)});
}

/// Where exporters put the scale. (qk + mask) * scale is another function, unless the mask holds nothing but 0 and
/// -inf.
enum class Scale { kMul, kDiv, kNone, kOnQ };

/// Key t is seen by query s if t <= T - S + s; elsewhere the score is minus infinity.
V causal_scores(Builder& b, V scores) {
  V shape = b.op("Shape", {scores});
  const int64_t rank = b.rank(scores);
  V square = b.op("Gather", {shape, b.integers_constant({rank - 2, rank - 1})});
  V ones = b.op("Expand", {b.constant(1, scores), square});
  V offset = b.op("Sub", {b.op("Gather", {shape, b.integers_constant({rank - 1})}),
                          b.op("Gather", {shape, b.integers_constant({rank - 2})})});
  Attributes lower;
  lower.set("upper", int64_t(0));
  V seen = b.op("Trilu", {ones, b.reshape(offset, {})}, lower);
  return b.op("Where", {b.cast(seen, DType::kBool), scores, b.constant(-INFINITY, scores)});
}

template <Scale kScale>
V scores_of(Builder& b) {
  V q = b.input(kQ), k = swap_last(b, shared_heads(b, b.input(kK)));
  if constexpr (kScale == Scale::kOnQ) q = q * b.number_like("scale", q);
  V scores = b.matmul(q, k);
  if constexpr (kScale == Scale::kMul) scores = scores * b.number_like("scale", scores);
  if constexpr (kScale == Scale::kDiv) scores = scores / (b.constant(1, scores) / b.number_like("scale", scores));
  if (b.has(kMask)) scores = scores + b.input(kMask);
  return b.flag("causal") ? causal_scores(b, scores) : scores;
}

template <Scale kScale>
void decompose_attention(Builder& b) {
  b.result(b.matmul(b.softmax(scores_of<kScale>(b), -1), shared_heads(b, b.input(kV))));
}

void attention_gradient(Gradient& g) {
  V scale = g.number_like("scale", g.input(kQ));
  V q = g.input(kQ), k = shared_heads(g, g.input(kK)), v = shared_heads(g, g.input(kV)), dy = g.gradient();
  V p = g.softmax(scores_of<Scale::kMul>(g), -1);
  V dp = g.matmul(dy, swap_last(g, v));
  V ds = p * (dp - g.reduce("ReduceSum", dp * p, {-1}));
  // Where heads are shared, the gradients of the copies are summed.
  auto to_shared = [&](V d, V like) {
    const Shape &from = g.shape(d), &to = g.shape(like);
    if (from.size() == 3 || from[1] == to[1]) return d;
    const int64_t own = to[1].value();
    V split = g.reshape(d, {0, own, own ? from[1].value() / own : 0, -1});
    return g.op("Reshape", {g.reduce("ReduceSum", split, {2}), g.op("Shape", {like})});
  };
  g.input_gradient(kQ, g.matmul(ds, k) * scale);
  g.input_gradient(kK, to_shared(g.matmul(swap_last(g, ds), q) * scale, g.input(kK)));
  g.input_gradient(kV, to_shared(g.matmul(swap_last(g, p), dy), g.input(kV)));
  if (g.has(kMask)) g.input_gradient(kMask, g.unbroadcast(ds, g.input(kMask)));
}

}  // namespace

constinit const OpSchema kScaledDotProductAttention = {
    .name = "ScaledDotProductAttention",
    .domain = "ridgeline",
    .family = "attention",
    .kind = OpKind::kContraction,
    .doc =
        "softmax(q x k^T * scale + mask) x v; several heads of q may share one of k and v; causal: query i sees keys "
        "up to T - S + i. Source: Vaswani et al., 2017.",
    .inputs = {{"q", kFloats}, {"k", kFloats, "q"}, {"v", kFloats, "q"}, {"mask", kFloats, "q", true}},
    .outputs = {{"y"}},
    .attributes = {{"scale", 1.0}, {"causal", 0}},
    .infer = infer_attention,
    .cost = attention_cost,
    .reference = attention_reference,
    .decompose = {decompose_attention<Scale::kMul>, decompose_attention<Scale::kDiv>, decompose_attention<Scale::kNone>,
                  decompose_attention<Scale::kOnQ>},
    .gradient = attention_gradient,
    .samples = {"q=f32[1,2,7,16] k=f32[1,2,7,16] v=f32[1,2,7,16] scale=0.25",
                "q=f32[2,3,5,8] k=f32[2,3,9,8] v=f32[2,3,9,6] mask=f32[2,1,1,9] scale=0.35",
                "q=f32[3,5,8] k=f32[3,9,8] v=f32[3,9,8] mask=f32[5,9] scale=0.5",
                "q=f32[4,7,8] k=f32[4,7,8] v=f32[4,7,8] scale=0.35",
                "q=f32[1,4,5,8] k=f32[1,2,7,8] v=f32[1,2,7,8] scale=0.35 causal=1",
                "q=f32[1,2,1,16] k=f32[1,2,33,16] v=f32[1,2,33,16] scale=0.25 causal=1",
                "q=f32[0,2,3,8] k=f32[0,2,3,8] v=f32[0,2,3,8]", "q=f32[1,2,3,8] k=f32[1,2,0,8] v=f32[1,2,0,8]",
                "q=f32[1,2,0,8] k=f32[1,2,3,8] v=f32[1,2,3,8]",
                "q=f16[1,2,9,16] k=f16[1,2,9,16] v=f16[1,2,9,16] scale=0.25",
                "q=bf16[1,1,17,8] k=bf16[1,1,17,8] v=bf16[1,1,17,8] scale=0.35",
                "q=f32[1,12,33,64] k=f32[1,12,33,64] v=f32[1,12,33,64] scale=0.125"},
    .tolerance = Tolerance::contraction(8),
};

std::span<const OpSchema* const> attention_ops() {
  static constexpr const OpSchema* kOps[] = {&kScaledDotProductAttention};
  return kOps;
}

}  // namespace ridgeline
