// Operators that leave the elements as they are and change the shape, the order, or nothing.
// Source: the ONNX operator standard, ai.onnx.
#include <algorithm>
#include <numeric>

#include "ops/movement.h"

namespace ridgeline {

namespace {

void infer_reshape(Infer& i) {
  const Shape& from = i.shape(0);
  std::vector<Dim> to = i.need_values(1);
  const bool keep_zero = i.flag("allowzero");
  int inferred = -1;
  Dim others = 1;
  for (size_t a = 0; a < to.size(); ++a) {
    if (to[a].is(-1)) {
      i.require(inferred < 0, fmt::format("shape {} has more than one -1", text(to)));
      inferred = int(a);
      continue;
    }
    if (to[a].is(0) && !keep_zero) {
      i.require(a < from.size(), fmt::format("shape {} copies axis {}, but 'data' is {}", text(to), a, text(from)));
      to[a] = from[a];
    }
    i.require(!to[a].known() || to[a].value() >= 0, fmt::format("shape {}; allowed: extents >= 0, one -1", text(to)));
    others = others * to[a];
  }
  const Dim total = product(from);
  if (inferred >= 0) {
    // [0, -1] and the like: any extent would do, the standard's reference refuses; 0 keeps the count right.
    const bool divides = !total.known() || !others.known() ||
                         (others.value() ? total.value() % others.value() == 0 : total.value() == 0);
    i.require(divides, fmt::format("{} with {} elements cannot take shape {}", text(from), total.text(), text(to)));
    to[size_t(inferred)] = floor_div(total, others);
  } else {
    i.require(!total.known() || !others.known() || total == others,
              fmt::format("{} with {} elements cannot take shape {} with {}", text(from), total.text(), text(to),
                          others.text()));
  }
  i.output(0, i.dtype(0), std::move(to));
  pass_values(i);
}

void infer_flatten(Infer& i) {
  const Shape& shape = i.shape(0);
  const int rank = int(shape.size());
  const int64_t axis = i.integer("axis"), at = axis < 0 ? axis + rank : axis;
  i.require(at >= 0 && at <= rank, fmt::format("axis = {}; allowed: {} to {}", axis, -rank, rank));
  i.output(0, i.dtype(0),
           {product(Shape(shape.begin(), shape.begin() + at)), product(Shape(shape.begin() + at, shape.end()))});
}

void infer_squeeze(Infer& i) {
  const Shape& shape = i.shape(0);
  std::vector<bool> drop(shape.size(), false);
  if (i.has(1)) {
    for (int axis : i.axes(i.need_integers(1), int(shape.size()))) {
      const Dim& extent = shape[size_t(axis)];
      i.require(!extent.known() || extent.is(1), fmt::format("axis {} of {} is not 1", axis, text(shape)));
      drop[size_t(axis)] = true;
    }
  } else {
    for (size_t a = 0; a < shape.size(); ++a) {
      if (!shape[a].known())
        throw NeedsValues(0, fmt::format("Squeeze without axes: whether extent {} is 1 is not known", shape[a].text()));
      drop[a] = shape[a].is(1);
    }
  }
  Shape result;
  for (size_t a = 0; a < shape.size(); ++a) {
    if (!drop[a]) result.push_back(shape[a]);
  }
  i.output(0, i.dtype(0), std::move(result));
  pass_values(i);
}

void infer_unsqueeze(Infer& i) {
  const Shape& shape = i.shape(0);
  const std::vector<int64_t> axes = i.need_integers(1);
  const int rank = int(shape.size() + axes.size());
  const std::vector<int> at = i.axes(axes, rank);
  Shape result;
  size_t next = 0;
  for (int a = 0; a < rank; ++a) result.push_back(std::binary_search(at.begin(), at.end(), a) ? Dim(1) : shape[next++]);
  i.output(0, i.dtype(0), std::move(result));
  pass_values(i);
}

template <typename T>
std::vector<int64_t> permutation(const T& i, int rank) {
  std::vector<int64_t> reversed(size_t(rank), 0);
  for (int a = 0; a < rank; ++a) reversed[size_t(a)] = rank - 1 - a;
  std::vector<int64_t> perm = i.integers("perm", reversed);
  for (int64_t& axis : perm) axis += axis < 0 ? rank : 0;
  return perm;
}

void infer_transpose(Infer& i) {
  const Shape& shape = i.shape(0);
  const std::vector<int64_t> perm = permutation(i, int(shape.size()));
  std::vector<int64_t> sorted = perm;
  std::sort(sorted.begin(), sorted.end());
  bool ok = sorted.size() == shape.size();
  for (size_t a = 0; ok && a < sorted.size(); ++a) ok = sorted[a] == int64_t(a);
  i.require(ok, fmt::format("perm = [{}] is no permutation of the {} axes of {}", fmt::join(perm, ","), shape.size(),
                            text(shape)));
  Shape result;
  for (int64_t axis : perm) result.push_back(shape[size_t(axis)]);
  i.output(0, i.dtype(0), std::move(result));
  pass_values(i);
}

void reference_transpose(Reference& r) {
  const std::vector<int64_t> perm = permutation(r, r.in[0].rank()), strides = row_major_strides(r.in[0].shape);
  for (Index at(r.out[0].shape); at.more(); ++at) {
    int64_t from = 0;
    for (size_t a = 0; a < perm.size(); ++a) from += at[int(a)] * strides[size_t(perm[a])];
    r.out[0].copy(at.flat(), r.in[0], from);
  }
}

void gradient_transpose(Gradient& g) {
  const std::vector<int64_t> perm = permutation(g, g.rank(g.input(0)));
  std::vector<int64_t> inverse(perm.size());
  for (size_t a = 0; a < perm.size(); ++a) inverse[size_t(perm[a])] = int64_t(a);
  g.input_gradient(0, g.transpose(g.gradient(), inverse));
}

void infer_expand(Infer& i) {
  Shape to = i.need_values(1), from = i.shape(0);
  const Shape original = from, asked = to;
  from.insert(from.begin(), to.size() > from.size() ? to.size() - from.size() : 0, Dim(1));
  to.insert(to.begin(), from.size() > to.size() ? from.size() - to.size() : 0, Dim(1));
  Shape result(from.size());
  for (size_t a = 0; a < from.size(); ++a) {
    i.require(broadcast(from[a], to[a], result[a]),
              fmt::format("{} does not broadcast to shape {}", text(original), text(asked)));
  }
  i.output(0, i.dtype(0), result);
  const auto values = i.values(0);
  if (!values || result.size() > 1 || !known(result)) return;
  const size_t count = result.empty() ? 1 : size_t(result[0].value());
  i.output_values(0, values->size() == 1 ? std::vector<Dim>(count, (*values)[0]) : *values);
}

void reference_expand(Reference& r) {
  for (Index at(r.out[0].shape); at.more(); ++at)
    r.out[0].copy(at.flat(), r.in[0], broadcast_index(r.in[0].shape, at.at()));
}

void infer_identity(Infer& i) {
  i.same_as(0, 0);
  pass_values(i);
}

void infer_dropout(Infer& i) {
  i.same_as(0, 0);
  if (i.wants(1)) i.output(1, DType::kBool, i.shape(0));
}

// Evenly from [0, 1): the k-th number of a seed, whatever was drawn before. Source: Steele, Lea and Flood, "Fast
// splittable pseudorandom number generators", 2014 (SplitMix64).
double uniform(uint64_t seed, uint64_t k) {
  uint64_t z = seed + (k + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return double((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

void reference_dropout(Reference& r) {
  const RefArray& x = r.in[0];
  const bool training = r.has(2) && r.in[2].elements() == 1 && r.in[2].i[0] != 0;
  const double ratio = !training ? 0 : r.has(1) && r.in[1].elements() == 1 ? r.in[1].f[0] : 0.5;
  if (!(ratio >= 0 && ratio < 1)) fail(ErrorCode::kBadInput, "Dropout: ratio = {}; allowed: from 0, below 1", ratio);
  // The same mask for the same seed; without one it is that of seed 0, so that a run can be repeated.
  const auto seed = uint64_t(r.integer("seed"));
  for (int64_t k = 0; k < x.elements(); ++k) {
    const bool kept = ratio == 0 || uniform(seed, uint64_t(k)) >= ratio;
    r.out[0].f[size_t(k)] = kept ? x.f[size_t(k)] / (1 - ratio) : 0;
    if (r.wants(1)) r.out[1].i[size_t(k)] = kept;
  }
}

void infer_shape(Infer& i) {
  const Shape& shape = i.shape(0);
  const int64_t rank = int64_t(shape.size());
  auto clamped = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
  const int64_t begin = clamped(i.integer("start")), end = clamped(i.attributes().integer("end", rank));
  std::vector<Dim> values(shape.begin() + begin, shape.begin() + std::max(begin, end));
  i.output(0, DType::kI64, {int64_t(values.size())});
  i.output_values(0, std::move(values));
}

void reference_shape(Reference& r) {
  const int64_t rank = r.in[0].rank(), start = r.integer("start");
  const int64_t begin = std::clamp<int64_t>(start < 0 ? start + rank : start, 0, rank);
  for (int64_t k = 0; k < r.out[0].elements(); ++k) r.out[0].i[size_t(k)] = r.in[0].shape[size_t(begin + k)];
}

void cast_like(Builder& b) {
  const DType to = b.dtype(b.input(1));
  if (!contains(kSmall, to)) return b.result(b.cast(b.input(0), to));
  Attributes attributes;
  attributes.set("to", int64_t(info(to).onnx_id));
  attributes.set("saturate", b.integer("saturate"));
  attributes.set("round_mode", b.string("round_mode"));
  b.result(b.op("Cast", {b.input(0)}, std::move(attributes)));
}

constexpr StaticList<std::string_view, 24> kSameSamples = {"x=f32[2,3,65]", "x=i64[]", "x=bool[0,4]"};

constexpr OpSchema same(std::string_view name, std::string_view domain, StaticList<int, 16> versions,
                        std::string_view doc) {
  return {.name = name,
          .domain = domain,
          .family = "movement",
          .kind = kMovement,
          .doc = doc,
          .versions = versions,
          .inputs = {{"x", kAny}},
          .outputs = {{"y"}},
          .infer = infer_identity,
          .cost = cost_of_copy,
          .reference = reference_flat_copy,
          .gradient = [](Gradient& g) { g.input_gradient(0, g.gradient()); },
          .samples = kSameSamples};
}

}  // namespace

constinit const OpSchema kIdentity = same("Identity", "", {1, 13, 14, 16, 19, 21, 23, 24, 25}, "y = x");
constinit const OpSchema kCopy = same("Copy", "ridgeline", {}, "y = x, stored in another layout");

constinit const OpSchema kDropout = {
    .name = "Dropout",
    .family = "movement",
    .kind = kMovement,
    .doc =
        "inference: y = x, the mask is true everywhere; training: a part `ratio` becomes 0, the rest is divided by "
        "1 - ratio, by a mask that the seed says; Srivastava et al., 2014",
    .since = 12,
    .versions = {1, 6, 7, 10, 12, 13, 22},
    .inputs = {{"data", kFloats | kFloat8},
               optional_input("ratio", kFloats | kFloat8),
               optional_input("training_mode", kBools)},
    .outputs = {{"output"}, optional_output("mask")},
    .attributes = {{"seed", AttributeType::kInt}},
    .infer = infer_dropout,
    .cost = cost_of_copy,
    .reference = reference_dropout,
    .gradient =
        [](Gradient& g) {  // through the same mask, which the seed and the position say
          if (!g.has(2)) return g.input_gradient(0, g.gradient());
          Attributes same;
          same.set("seed", g.integer("seed"));
          g.input_gradient(0, g.op("Dropout", {g.gradient(), g.input(1), g.input(2)}, same));
        },
    .samples = {"data=f32[2,3,65]", "data=f16[0,4]", "data=f32[]",
                "data=f32[5,7] ratio=f32{0.25} training_mode=bool{1} seed=7"},
};

constinit const OpSchema kCastLike = {
    .name = "CastLike",
    .family = "movement",
    .kind = kMovement,
    .doc = "input in the type of target_type; as Cast",
    .since = 15,
    .versions = {15, 19, 21, 23, 24, 25},
    .inputs = {{"input", kAny}, {"target_type", kAny}},
    .outputs = {{"output"}},
    .attributes = {{"saturate", 1}, {"round_mode", "up"}},
    .infer = [](Infer& i) { i.output(0, i.dtype(1), i.shape(0)); },
    .decompose = {cast_like},
    .samples = {"input=f32[2,3,65] target_type=f16[1]", "input=i64[0,4] target_type=f32[]",
                "input=f32[7] target_type=i32[2,2]"},
};

constinit const OpSchema kReshape = {
    .name = "Reshape",
    .family = "movement",
    .kind = kMovement,
    .doc = "the same elements in row-major order under another shape; 0 copies an extent, one -1 is inferred",
    .since = 5,
    .versions = {1, 5, 13, 14, 19, 21, 23, 24, 25},
    .inputs = {{"data", kAny}, {"shape", kInt64}},
    .outputs = {{"reshaped"}},
    .attributes = {{"allowzero", 0}},
    .infer = infer_reshape,
    .cost = cost_of_copy,
    .reference = reference_flat_copy,
    .gradient = gradient_reshape_back,
    .samples = {"data=f32[2,3,65] shape=i64{5,-1}", "data=f32[2,3,4] shape=i64{0,-1}",
                "data=f32[0,4] shape=i64{4,0} allowzero=1", "data=i64[1] shape=i64{1,1,1}"},
};

constinit const OpSchema kFlatten = {
    .name = "Flatten",
    .family = "movement",
    .kind = kMovement,
    .doc = "[product of the extents before axis, product of the others]",
    .versions = {1, 9, 11, 13, 21, 23, 24, 25},
    .inputs = {{"input", kAny}},
    .outputs = {{"output"}},
    .attributes = {{"axis", 1}},
    .infer = infer_flatten,
    .cost = cost_of_copy,
    .reference = reference_flat_copy,
    .gradient = gradient_reshape_back,
    .samples = {"input=f32[2,3,65]", "input=f32[2,3,4] axis=-1", "input=f32[2,0,4] axis=3", "input=f32[5] axis=0"},
};

constinit const OpSchema kSqueeze = {
    .name = "Squeeze",
    .family = "movement",
    .kind = kMovement,
    .doc = "drops extents of 1: those of axes, or all",
    .since = 13,
    .versions = {1, 11, 13, 21, 23, 24, 25},
    .inputs = {{"data", kAny}, optional_input("axes", kInt64)},
    .outputs = {{"squeezed"}},
    .infer = infer_squeeze,
    .cost = cost_of_copy,
    .reference = reference_flat_copy,
    .gradient = gradient_reshape_back,
    .samples = {"data=f32[1,3,1,65]", "data=f32[2,1,4,1] axes=i64{-1,1}", "data=i64[1] axes=i64{0}",
                "data=f32[0,1] axes=i64{-1}"},
};

constinit const OpSchema kUnsqueeze = {
    .name = "Unsqueeze",
    .family = "movement",
    .kind = kMovement,
    .doc = "inserts extents of 1 where axes, which count in the result, say",
    .since = 13,
    .versions = {1, 11, 13, 21, 23, 24, 25},
    .inputs = {{"data", kAny}, {"axes", kInt64}},
    .outputs = {{"expanded"}},
    .infer = infer_unsqueeze,
    .cost = cost_of_copy,
    .reference = reference_flat_copy,
    .gradient = gradient_reshape_back,
    .samples = {"data=f32[3,65] axes=i64{0,3}", "data=f32[] axes=i64{0}", "data=i64[0,4] axes=i64{-1,1}"},
};

constinit const OpSchema kTranspose = {
    .name = "Transpose",
    .family = "movement",
    .kind = kMovement,
    .doc = "axis a of the result is axis perm[a] of the input; without perm the order is reversed",
    .versions = {1, 13, 21, 23, 24, 25},
    .inputs = {{"data", kAny}},
    .outputs = {{"transposed"}},
    .attributes = {{"perm", AttributeType::kInts}},
    .infer = infer_transpose,
    .cost = cost_of_copy,
    .reference = reference_transpose,
    .gradient = gradient_transpose,
    .samples = {"data=f32[2,3,65]", "data=f32[2,3,4,5] perm=0,2,3,1", "data=f16[0,4] perm=1,0", "data=i64[]",
                "data=bool[33,17] perm=1,0", "data=f32[3,5,7] perm=1,0,2"},
};

constinit const OpSchema kExpand = {
    .name = "Expand",
    .family = "movement",
    .kind = kMovement,
    .doc = "input broadcast with a tensor of the given shape",
    .since = 8,
    .versions = {8, 13},
    .inputs = {{"input", kAny}, {"shape", kInt64}},
    .outputs = {{"output"}},
    .infer = infer_expand,
    .cost = cost_of_copy,
    .reference = reference_expand,
    .gradient = [](Gradient& g) { g.input_gradient(0, g.unbroadcast(g.gradient(), g.input(0))); },
    .samples = {"input=f32[3,1] shape=i64{2,1,65}", "input=f32[2,3,4] shape=i64{1}", "input=i64[] shape=i64{4}",
                "input=f16[1,3] shape=i64{0,3}"},
};

constinit const OpSchema kShape = {
    .name = "Shape",
    .family = "movement",
    .kind = kMovement,
    .doc = "the extents of axes start to end",
    .versions = {1, 13, 15, 19, 21, 23, 24, 25},
    .inputs = {{"data", kAny}},
    .outputs = {{"shape"}},
    .attributes = {{"start", 0}, {"end", AttributeType::kInt}},
    .infer = infer_shape,
    .cost = [](const Problem& p) { return Cost{.write_bytes = p.write_bytes()}; },
    .reference = reference_shape,
    .no_gradient = kNoGradientDiscrete,
    .samples = {"data=f32[2,3,65]", "data=f32[2,3,4] start=-2", "data=f32[] ", "data=bool[0,4] start=1 end=-1",
                "data=f32[2,3] start=2 end=9"},
};

constinit const OpSchema kSize = {
    .name = "Size",
    .family = "movement",
    .kind = kMovement,
    .doc = "the number of elements",
    .versions = {1, 13, 19, 21, 23, 24, 25},
    .inputs = {{"data", kAny}},
    .outputs = {{"size"}},
    .infer =
        [](Infer& i) {
          i.output(0, DType::kI64, {});
          i.output_values(0, {product(i.shape(0))});
        },
    .cost = [](const Problem& p) { return Cost{.write_bytes = p.write_bytes()}; },
    .reference = [](Reference& r) { r.out[0].i[0] = r.in[0].elements(); },
    .no_gradient = kNoGradientDiscrete,
    .samples = {"data=f32[2,3,65]", "data=f32[]", "data=bool[0,4]"},
};

std::span<const OpSchema* const> movement_view_ops() {
  static constexpr const OpSchema* kOps[] = {&kCastLike, &kCopy,  &kDropout, &kExpand,  &kFlatten,   &kIdentity,
                                             &kReshape,  &kShape, &kSize,    &kSqueeze, &kTranspose, &kUnsqueeze};
  return kOps;
}

}  // namespace ridgeline
