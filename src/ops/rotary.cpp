// Rotary positions and caches of keys and values that are written in place. Sources: Su et al., "RoFormer", 2021; ONNX
// RotaryEmbedding-23, TensorScatter-24.
#include <algorithm>

#include "core/saturate.h"
#include "ops/catalogue.h"
#include "ops/common.h"

namespace ridgeline {
namespace {

bool same(const Dim& a, const Dim& b) { return !a.known() || !b.known() || a == b; }

// ---- RotaryEmbedding

namespace rotary {

enum Input { kX, kCos, kSin, kPositions };

void infer(Infer& i) {
  const Shape& x = i.shape(kX);
  i.require(x.size() == 3 || x.size() == 4, [&] {
    return fmt::format("X is {}: [batch, heads, length, depth] or [batch, length, heads * depth]", text(x));
  });
  const int64_t heads = i.integer("num_heads");
  Dim depth = x.back();
  if (x.size() == 3) {
    i.require(heads > 0, "X has 3 axes: attribute 'num_heads' must say how many heads that is");
    i.require(!depth.known() || depth.value() % heads == 0,
              [&] { return fmt::format("X is {}: its last extent does not divide into {} heads", text(x), heads); });
    depth = floor_div(depth, heads);
  }
  const Dim &batch = x[0], &length = x[x.size() - 2];
  const int64_t part = i.integer("rotary_embedding_dim");
  i.require(part >= 0 && part % 2 == 0 && (!depth.known() || part <= depth.value()), [&] {
    return fmt::format("rotary_embedding_dim = {}: even, and at most {} is wanted", part, text(Shape{depth}));
  });
  const Dim turned = part ? Dim(part) : depth;
  i.require(!turned.known() || turned.value() % 2 == 0,
            [&] { return fmt::format("a depth of {} does not divide into pairs", turned.value()); });
  const Dim pairs = floor_div(turned, 2);
  const int rank = i.has(kPositions) ? 2 : 3;
  for (int table : {kCos, kSin}) {
    const Shape& t = i.shape(table);
    i.require(
        int(t.size()) == rank && same(t.back(), pairs) && (rank == 2 || (same(t[0], batch) && same(t[1], length))),
        [&] {
          return fmt::format("'{}' is {}: [{}{}] is wanted", i.op().inputs[table].name, text(t),
                             rank == 2 ? "positions, " : "batch, length, ", text(Shape{pairs}));
        });
  }
  i.require(same(i.dim(kCos, 0), i.dim(kSin, 0)), "cos_cache and sin_cache differ in shape");
  if (i.has(kPositions))
    i.require(i.rank(kPositions) == 2 && same(i.dim(kPositions, 0), batch) && same(i.dim(kPositions, 1), length),
              [&] { return fmt::format("position_ids is {}: [batch, length] is wanted", text(i.shape(kPositions))); });
  i.same_as(0, kX);
}

void reference(Reference& r) {
  const RefArray& x = r.in[kX];
  const bool packed = x.rank() == 3;
  const int64_t heads = packed ? r.integer("num_heads") : x.dim(1), batch = x.dim(0), length = x.dim(-2),
                depth = packed ? x.dim(2) / heads : x.dim(3);
  const int64_t part = r.integer("rotary_embedding_dim"), pairs = (part ? part : depth) / 2;
  const bool interleaved = r.flag("interleaved");
  const auto row_of = [&](int64_t b, int64_t s) {
    if (!r.has(kPositions)) return b * length + s;
    const int64_t row = r.in[kPositions].integer(b * length + s);
    if (row < 0 || row >= r.in[kCos].dim(0))
      fail(ErrorCode::kBadInput, "RotaryEmbedding: position {} of a table of {}", row, r.in[kCos].dim(0));
    return row;
  };
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t s = 0; s < length; ++s) {
      const int64_t row = row_of(b, s);
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t at = packed ? ((b * length + s) * heads + h) * depth : ((b * heads + h) * length + s) * depth;
        for (int64_t d = 2 * pairs; d < depth; ++d) r.out[0].copy(at + d, x, at + d);
        for (int64_t p = 0; p < pairs; ++p) {
          const int64_t a = at + (interleaved ? 2 * p : p), o = at + (interleaved ? 2 * p + 1 : p + pairs);
          const double c = r.in[kCos].f[size_t(row * pairs + p)], t = r.in[kSin].f[size_t(row * pairs + p)];
          r.out[0].f[size_t(a)] = c * x.f[size_t(a)] - t * x.f[size_t(o)];
          r.out[0].f[size_t(o)] = t * x.f[size_t(a)] + c * x.f[size_t(o)];
        }
      }
    }
}

}  // namespace rotary

// ---- TensorScatter

namespace scatter {

enum Input { kPast, kUpdate, kIndices };

void infer(Infer& i) {
  const Shape &past = i.shape(kPast), &update = i.shape(kUpdate);
  i.require(past.size() >= 2 && past.size() == update.size(), [&] {
    return fmt::format("past_cache {} and update {}: equal ranks of at least 2 are wanted", text(past), text(update));
  });
  const int axis = i.axis(i.integer("axis"), int(past.size()));
  i.require(axis != 0, "axis = 0: the batch's axis cannot be the sequence's");
  for (int a = 0; a < int(past.size()); ++a) {
    const Dim &p = past[size_t(a)], &u = update[size_t(a)];
    const bool fits = a == axis ? !p.known() || !u.known() || u.value() <= p.value() : same(p, u);
    i.require(fits, [&] { return fmt::format("update {} does not fit into past_cache {}", text(update), text(past)); });
  }
  const std::string mode = i.string("mode");
  i.require(mode == "linear" || mode == "circular",
            [&] { return fmt::format("mode = '{}': allowed are linear and circular", mode); });
  if (i.has(kIndices))
    i.require(i.rank(kIndices) == 1 && same(i.dim(kIndices, 0), past[0]),
              [&] { return fmt::format("write_indices is {}: [batch] is wanted", text(i.shape(kIndices))); });
  i.same_as(0, kPast);
}

void reference(Reference& r) {
  const RefArray &past = r.in[kPast], &update = r.in[kUpdate];
  const int64_t given = r.integer("axis");
  const int axis = int(given < 0 ? given + past.rank() : given);
  const bool circular = r.string("mode") == "circular";
  for (int64_t k = 0; k < past.elements(); ++k) r.out[0].copy(k, past, k);
  const std::vector<int64_t> strides = row_major_strides(past.shape);
  const int64_t capacity = past.dim(axis);
  for (Index at(update.shape); at.more(); ++at) {
    int64_t row = (r.has(kIndices) ? r.in[kIndices].integer(at[0]) : 0) + at[axis];
    if (circular && row >= 0) row %= capacity;
    if (row < 0 || row >= capacity) fail(ErrorCode::kBadInput, "TensorScatter: row {} of a cache of {}", row, capacity);
    int64_t to = row * strides[size_t(axis)];
    for (int a = 0; a < past.rank(); ++a)
      if (a != axis) to += at[a] * strides[size_t(a)];
    r.out[0].copy(to, update, at.flat());
  }
}

// The cache is state: where it is written in place, the rows alone move.
Cost cost(const Problem& p) {
  const int64_t bytes = p.input(kUpdate).bytes();
  return {.flops = 0, .read_bytes = bytes + (p.has(kIndices) ? p.input(kIndices).bytes() : 0), .write_bytes = bytes};
}

}  // namespace scatter

// ---- RotaryAppend

namespace append {

enum Input { kQkv, kCos, kSin, kKeys, kValues, kIndices };

void infer(Infer& i) {
  const Shape &x = i.shape(kQkv), &keys = i.shape(kKeys), &values = i.shape(kValues);
  const int64_t heads = i.integer("num_heads"), own = i.integer("kv_num_heads");
  i.require(heads > 0 && own > 0 && heads % own == 0,
            [&] { return fmt::format("num_heads = {}, kv_num_heads = {}: a multiple is wanted", heads, own); });
  i.require(x.size() == 3, [&] { return fmt::format("qkv is {}: [batch, length, width] is wanted", text(x)); });
  i.require(keys.size() == 4 && values.size() == 4 && same(keys[0], x[0]) && same(keys[1], own), [&] {
    return fmt::format("the caches are {} and {}: [batch, kv heads, capacity, depth]", text(keys), text(values));
  });
  for (size_t a = 0; a < 4; ++a)
    i.require(same(keys[a], values[a]),
              [&] { return fmt::format("the caches differ: {} and {}", text(keys), text(values)); });
  const Dim& depth = keys[3];
  i.require(!depth.known() || (depth.value() % 2 == 0 && same(x[2], Dim((heads + 2 * own) * depth.value()))), [&] {
    return fmt::format("qkv is {}: {} heads of queries and twice {} of keys and values, {} deep, are wanted", text(x),
                       heads, own, text(Shape{depth}));
  });
  i.require(!x[1].known() || !keys[2].known() || x[1].value() <= keys[2].value(),
            [&] { return fmt::format("{} rows do not fit into caches {}", text(Shape{x[1]}), text(keys)); });
  for (int table : {kCos, kSin})
    i.require(i.rank(table) == 2 && same(i.dim(table, 1), floor_div(depth, 2)),
              [&] { return fmt::format("the tables are [positions, depth / 2]; one is {}", text(i.shape(table))); });
  i.require(same(i.dim(kCos, 0), i.dim(kSin, 0)), "the tables differ in shape");
  i.require(i.rank(kIndices) == 1 && same(i.dim(kIndices, 0), x[0]),
            [&] { return fmt::format("write_indices is {}: [batch] is wanted", text(i.shape(kIndices))); });
  i.output(0, i.dtype(kQkv), {x[0], heads, x[1], depth});
  i.same_as(1, kKeys);
  i.same_as(2, kValues);
}

void reference(Reference& r) {
  const RefArray& x = r.in[kQkv];
  const int64_t batch = x.dim(0), length = x.dim(1), heads = r.integer("num_heads"), own = r.integer("kv_num_heads"),
                depth = r.in[kKeys].dim(3), capacity = r.in[kKeys].dim(2), pairs = depth / 2;
  for (int which : {kKeys, kValues})
    for (int64_t k = 0; k < r.in[size_t(which)].elements(); ++k)
      r.out[size_t(which - kKeys + 1)].copy(k, r.in[size_t(which)], k);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t s = 0; s < length; ++s) {
      const int64_t row = r.in[kIndices].integer(b) + s;
      if (row < 0 || row >= capacity || row >= r.in[kCos].dim(0))
        fail(ErrorCode::kBadInput, "RotaryAppend: row {} of caches of {} and tables of {}", row, capacity,
             r.in[kCos].dim(0));
      for (int64_t h = 0; h < heads + 2 * own; ++h) {
        const double* from = x.f.data() + ((b * length + s) * (heads + 2 * own) + h) * depth;
        const int part = h < heads ? 0 : h < heads + own ? 1 : 2;
        double* to = part == 0 ? r.out[0].f.data() + ((b * heads + h) * length + s) * depth
                               : r.out[size_t(part)].f.data() +
                                     ((b * own + h - heads - (part == 2 ? own : 0)) * capacity + row) * depth;
        if (part == 2) {
          std::copy_n(from, depth, to);
          continue;
        }
        for (int64_t p = 0; p < pairs; ++p) {
          const double c = r.in[kCos].f[size_t(row * pairs + p)], t = r.in[kSin].f[size_t(row * pairs + p)];
          to[p] = c * from[p] - t * from[p + pairs];
          to[p + pairs] = t * from[p] + c * from[p + pairs];
        }
      }
    }
}

// As TensorScatter's.
Cost cost(const Problem& p) {
  const Operand& x = p.input(kQkv);
  const int64_t rows = saturated_product({x.shape()[0], x.shape()[1]}), depth = p.input(kKeys).shape()[3];
  const int64_t turned = saturated_product({rows, p.integer("num_heads") + p.integer("kv_num_heads"), depth});
  const int64_t table = saturated_product({rows, depth / 2});
  return {.flops = 3 * turned,
          .read_bytes = x.bytes() + 2 * bytes_of(p.input(kCos).dtype, table) + p.input(kIndices).bytes(),
          .write_bytes = x.bytes()};
}

}  // namespace append

constexpr InputSpec optional_input(std::string_view name, TypeSet types) {
  InputSpec spec{name, types};
  spec.optional = true;
  return spec;
}

constexpr std::string_view kNoGradient = "an inference operator, with tables or a cache";

}  // namespace

constinit const OpSchema kRotaryEmbedding = {
    .name = "RotaryEmbedding",
    .family = "attention",
    .kind = OpKind::kOpaque,
    .doc =
        "pairs of X's last axis, halves apart or side by side, turned by angles whose cosines and sines are given. "
        "Source: Su et al., 2021; ONNX RotaryEmbedding-23.",
    .since = 23,
    .versions = {23},
    .inputs = {{"X", kFloats},
               {"cos_cache", kFloats, "X"},
               {"sin_cache", kFloats, "X"},
               optional_input("position_ids", kInt64)},
    .outputs = {{"Y"}},
    .attributes = {{"interleaved", 0}, {"num_heads", 0}, {"rotary_embedding_dim", 0}},
    .infer = rotary::infer,
    .reference = rotary::reference,
    .no_gradient = kNoGradient,
    .samples = {"X=f32[2,3,5,8] cos_cache=f32[9,4] sin_cache=f32[9,4] position_ids=i64[2,5]",
                "X=f32[1,2,24] cos_cache=f32[1,2,4] sin_cache=f32[1,2,4] num_heads=3",
                "X=f16[2,2,3,16] cos_cache=f16[2,3,8] sin_cache=f16[2,3,8] interleaved=1",
                "X=bf16[1,4,1,64] cos_cache=bf16[1,1,16] sin_cache=bf16[1,1,16] rotary_embedding_dim=32",
                "X=f32[0,2,3,8] cos_cache=f32[0,3,4] sin_cache=f32[0,3,4]"},
    .tolerance = Tolerance::reduction(4),
};

constinit const OpSchema kTensorScatter = {
    .name = "TensorScatter",
    .family = "movement",
    .kind = OpKind::kMovement,
    .doc =
        "past_cache with update written at row write_indices of its sequence axis (circular: past the end from the "
        "beginning); in place where the caller gives one buffer for both. Source: ONNX TensorScatter-24.",
    .since = 24,
    .versions = {24},
    .inputs = {{"past_cache", kAny}, {"update", kAny, "past_cache"}, optional_input("write_indices", kInt64)},
    .outputs = {{"present_cache"}},
    .attributes = {{"axis", -2}, {"mode", "linear"}},
    .infer = scatter::infer,
    .cost = scatter::cost,
    .reference = scatter::reference,
    .no_gradient = kNoGradient,
    .samples = {"past_cache=f32[2,3,9,8] update=f32[2,3,2,8] write_indices=i64{0,7}",
                "past_cache=f16[1,2,16,65] update=f16[1,2,1,65] write_indices=i64{15}",
                "past_cache=f32[2,7,3] update=f32[2,4,3] write_indices=i64{6,2} mode=circular",
                "past_cache=i64[2,3,5] update=i64[2,3,2] axis=2", "past_cache=bf16[1,2,4,8] update=bf16[1,2,0,8]"},
};

constinit const OpSchema kRotaryAppend = {
    .name = "RotaryAppend",
    .domain = "ridgeline",
    .family = "attention",
    .kind = OpKind::kOpaque,
    .doc =
        "queries, keys and values of one product, [batch, length, heads * depth] side by side: queries and keys turned "
        "(RotaryEmbedding, halves apart), keys and values written into their caches from row write_indices on, which "
        "is the position too; in place where the caller gives one buffer for a cache before and after",
    .inputs = {{"qkv", kFloats},
               {"cos", kFloats},
               {"sin", kFloats, "cos"},
               {"k_cache", kFloats, "qkv"},
               {"v_cache", kFloats, "qkv"},
               {"write_indices", kInt64}},
    .outputs = {{"q"}, {"k_present"}, {"v_present"}},
    .attributes = {{"num_heads", AttributeType::kInt, kRequired}, {"kv_num_heads", AttributeType::kInt, kRequired}},
    .infer = append::infer,
    .cost = append::cost,
    .reference = append::reference,
    .no_gradient = kNoGradient,
    .samples = {"qkv=f32[1,1,48] cos=f32[12,4] sin=f32[12,4] k_cache=f32[1,2,12,8] v_cache=f32[1,2,12,8] "
                "write_indices=i64{11} num_heads=2 kv_num_heads=2",
                "qkv=f16[2,3,64] cos=f32[9,4] sin=f32[9,4] k_cache=f16[2,2,9,8] v_cache=f16[2,2,9,8] "
                "write_indices=i64{0,6} num_heads=4 kv_num_heads=2",
                "qkv=bf16[1,5,384] cos=f32[7,64] sin=f32[7,64] k_cache=bf16[1,1,7,128] v_cache=bf16[1,1,7,128] "
                "write_indices=i64{2} num_heads=1 kv_num_heads=1",
                "qkv=f16[1,0,48] cos=f16[12,4] sin=f16[12,4] k_cache=f16[1,2,12,8] v_cache=f16[1,2,12,8] "
                "write_indices=i64{0} num_heads=2 kv_num_heads=2"},
    .tolerance = Tolerance::reduction(4),
};

std::span<const OpSchema* const> rotary_ops() {
  static constexpr const OpSchema* kOps[] = {&kRotaryEmbedding, &kTensorScatter, &kRotaryAppend};
  return kOps;
}

}  // namespace ridgeline
