// Operators that read where indices say, or write there. Negative indices count from the end; others outside the axis
// are an error of the model's data: the reference throws Error{kBadInput}. Source: the ONNX operator standard, ai.onnx.
#include <algorithm>
#include <cmath>

#include "ops/movement.h"

namespace ridgeline {

namespace {

// Of a float from a file: beyond 64 bits it is what no shape may have, and NaN is negative.
int64_t whole_number(double x) { return x > -0x1p62 ? int64_t(std::min(x, 0x1p62)) : -1; }

int64_t checked_index(const Reference& r, int64_t index, int64_t extent) {
  if (index < -extent || index >= extent) {
    fail(ErrorCode::kBadInput, "{}: index {} is out of range for an extent of {}: allowed are {} to {}", r.op->name,
         index, extent, -extent, extent - 1);
  }
  return index < 0 ? index + extent : index;
}

// ---- Gather

void infer_gather(Infer& i) {
  const Shape& data = i.shape(0);
  const Shape& indices = i.shape(1);
  i.require(!data.empty(), "'data' is a scalar; allowed: rank 1 and above");
  const int axis = i.axis(i.integer("axis"), int(data.size()));
  Shape result(data.begin(), data.begin() + axis);
  result.insert(result.end(), indices.begin(), indices.end());
  result.insert(result.end(), data.begin() + axis + 1, data.end());
  i.output(0, i.dtype(0), result);
  const auto values = i.values(0), at = i.values(1);
  if (!values || !at || data.size() != 1 || indices.size() > 1) return;
  std::vector<Dim> picked;
  for (const Dim& index : *at) {
    if (!index.known()) return;
    const int64_t n = int64_t(values->size());
    i.require(index.value() >= -n && index.value() < n,
              fmt::format("index {} is out of range for an extent of {}", index.value(), n));
    picked.push_back((*values)[size_t(index.value() < 0 ? index.value() + n : index.value())]);
  }
  i.output_values(0, std::move(picked));
}

void reference_gather(Reference& r) {
  const RefArray &data = r.in[0], &indices = r.in[1];
  const AxisSpan span = span_of(data.shape, positive_axis(r.integer("axis"), data.rank()));
  const int64_t count = indices.elements();
  for (int64_t o = 0; o < span.outer; ++o) {
    for (int64_t k = 0; k < count; ++k) {
      if (span.inner == 0) continue;
      const int64_t row = checked_index(r, indices.integer(k), span.extent);
      for (int64_t c = 0; c < span.inner; ++c)
        r.out[0].copy((o * count + k) * span.inner + c, data, (o * span.extent + row) * span.inner + c);
    }
  }
}

// ---- GatherElements, ScatterElements

void require_elements_fit(Infer& i, int axis) {
  const Shape &data = i.shape(0), &indices = i.shape(1);
  i.require(data.size() == indices.size() && !data.empty(),
            fmt::format("'data' is {}, 'indices' {}; allowed: equal ranks, 1 and above", text(data), text(indices)));
  for (size_t a = 0; a < data.size(); ++a) {
    i.require(int(a) == axis || !data[a].known() || !indices[a].known() || indices[a].value() <= data[a].value(),
              fmt::format("'indices' {} exceeds 'data' {} on axis {}; allowed: on axis {} only", text(indices),
                          text(data), a, axis));
  }
}

void infer_gather_elements(Infer& i) {
  require_elements_fit(i, i.axis(i.integer("axis"), i.rank(0)));
  i.output(0, i.dtype(0), i.shape(1));
}

// Flat position in data of index element `at`.
int64_t element_position(const Reference& r, const Index& at, int axis, const std::vector<int64_t>& strides) {
  int64_t position = 0;
  for (int a = 0; a < r.in[0].rank(); ++a) {
    const int64_t k = a == axis ? checked_index(r, r.in[1].integer(at.flat()), r.in[0].dim(axis)) : at[a];
    position += k * strides[size_t(a)];
  }
  return position;
}

void reference_gather_elements(Reference& r) {
  const int axis = positive_axis(r.integer("axis"), r.in[0].rank());
  const std::vector<int64_t> strides = row_major_strides(r.in[0].shape);
  for (Index at(r.in[1].shape); at.more(); ++at)
    r.out[0].copy(at.flat(), r.in[0], element_position(r, at, axis, strides));
}

void infer_reduction_attribute(Infer& i) {
  const std::string reduction = i.string("reduction");
  i.require(reduction == "none" || reduction == "add" || reduction == "mul" || reduction == "max" || reduction == "min",
            fmt::format("reduction = '{}'; allowed: none, add, mul, max, min", reduction));
  i.require(reduction == "none" || i.dtype(0) != DType::kBool, "reduction of bool; allowed: none");
}

void infer_scatter_elements(Infer& i) {
  require_elements_fit(i, i.axis(i.integer("axis"), i.rank(0)));
  infer_reduction_attribute(i);
  bool fits = i.rank(1) == i.rank(2);
  for (int a = 0; fits && a < i.rank(1); ++a)
    fits = !i.dim(1, a).known() || !i.dim(2, a).known() || i.dim(1, a) == i.dim(2, a);
  i.require(fits,
            fmt::format("'indices' is {}, 'updates' {}; allowed: equal shapes", text(i.shape(1)), text(i.shape(2))));
  i.same_as(0, 0);
}

// y[k] = y[k] (reduction) x[j]
void combine(RefArray& y, int64_t k, const RefArray& x, int64_t j, std::string_view reduction) {
  if (reduction == "none") return y.copy(k, x, j);
  auto apply = [&](auto& a, auto b) {
    if (reduction == "add")
      a += b;
    else if (reduction == "mul")
      a *= b;
    else if (reduction == "max")
      a = a != a || a > b ? a : b;  // NaN wins
    else
      a = a != a || a < b ? a : b;
  };
  if (y.is_float())
    apply(y.f[size_t(k)], x.f[size_t(j)]);
  else if (y.dtype == DType::kU64 && (reduction == "max" || reduction == "min")) {
    uint64_t a = uint64_t(y.i[size_t(k)]);
    apply(a, uint64_t(x.i[size_t(j)]));
    y.i[size_t(k)] = int64_t(a);
  } else {
    // Unsigned arithmetic: integers wrap, which signed 64-bit overflow does not by rule.
    uint64_t wrapped = uint64_t(y.i[size_t(k)]);
    if (reduction == "add" || reduction == "mul") {
      apply(wrapped, uint64_t(x.i[size_t(j)]));
      y.i[size_t(k)] = int64_t(wrapped);
    } else {
      apply(y.i[size_t(k)], x.i[size_t(j)]);
    }
  }
}

void reference_scatter_elements(Reference& r) {
  const int axis = positive_axis(r.integer("axis"), r.in[0].rank());
  const std::vector<int64_t> strides = row_major_strides(r.in[0].shape);
  const std::string reduction = r.string("reduction");
  reference_flat_copy(r);
  for (Index at(r.in[1].shape); at.more(); ++at)
    combine(r.out[0], element_position(r, at, axis, strides), r.in[2], at.flat(), reduction);
}

// ---- GatherND, ScatterND

// The extent of the last axis of 'indices': how many leading axes of data (after the batch) a tuple addresses.
int64_t tuple_length(const Infer& i, int64_t batch) {
  i.require(i.rank(0) > 0 && i.rank(1) > 0, "scalars; allowed: 'data' and 'indices' of rank 1 and above");
  const Dim& last = i.shape(1).back();
  if (!last.known())
    throw NeedsValues(
        1, fmt::format("unsupported: the last extent of 'indices', {}, is symbolic; allowed: a number", last.text()));
  i.require(last.value() + batch <= i.rank(0),
            fmt::format("'indices' addresses {} axes of 'data' {} after {} batch axes", last.value(), text(i.shape(0)),
                        batch));
  return last.value();
}

void infer_gather_nd(Infer& i) {
  const int64_t batch = i.integer("batch_dims");
  i.require(batch >= 0 && batch < i.rank(1) && batch <= i.rank(0),
            fmt::format("batch_dims = {}; allowed: 0 to below the ranks", batch));
  const int64_t tuple = tuple_length(i, batch);
  const Shape &data = i.shape(0), &indices = i.shape(1);
  Shape result(indices.begin(), indices.end() - 1);
  for (int64_t a = 0; a < batch; ++a) {
    i.require(broadcast(data[size_t(a)], indices[size_t(a)], result[size_t(a)]),
              fmt::format("batch extents of 'data' {} and 'indices' {} differ", text(data), text(indices)));
  }
  result.insert(result.end(), data.begin() + batch + tuple, data.end());
  i.output(0, i.dtype(0), std::move(result));
}

// Calls use(flat index of the first element addressed in data, flat number of the tuple); returns the elements of a
// slice.
template <typename Use>
int64_t for_tuples(const Reference& r, int64_t batch, Use use) {
  const RefArray &data = r.in[0], &indices = r.in[1];
  const int64_t tuple = indices.shape.back();
  const std::vector<int64_t> strides = row_major_strides(data.shape);
  int64_t slice = 1;
  for (int64_t a = batch + tuple; a < data.rank(); ++a) slice *= data.dim(int(a));
  for (Index at(Extents(indices.shape.begin(), indices.shape.end() - 1)); at.more(); ++at) {
    int64_t position = 0;
    for (int64_t a = 0; a < batch; ++a) position += at[int(a)] * strides[size_t(a)];
    for (int64_t t = 0; t < tuple; ++t) {
      const int64_t a = batch + t;
      position += checked_index(r, indices.integer(at.flat() * tuple + t), data.dim(int(a))) * strides[size_t(a)];
    }
    use(position, at.flat(), slice);
  }
  return slice;
}

void reference_gather_nd(Reference& r) {
  for_tuples(r, r.integer("batch_dims"), [&](int64_t from, int64_t number, int64_t slice) {
    for (int64_t k = 0; k < slice; ++k) r.out[0].copy(number * slice + k, r.in[0], from + k);
  });
}

void infer_scatter_nd(Infer& i) {
  const int64_t tuple = tuple_length(i, 0);
  infer_reduction_attribute(i);
  Shape expected(i.shape(1).begin(), i.shape(1).end() - 1);
  expected.insert(expected.end(), i.shape(0).begin() + tuple, i.shape(0).end());
  bool fits = expected.size() == i.shape(2).size();
  for (size_t a = 0; fits && a < expected.size(); ++a)
    fits = !expected[a].known() || !i.shape(2)[a].known() || expected[a] == i.shape(2)[a];
  i.require(fits, fmt::format("'updates' is {}; allowed: {}", text(i.shape(2)), text(expected)));
  i.same_as(0, 0);
}

void reference_scatter_nd(Reference& r) {
  const std::string reduction = r.string("reduction");
  reference_flat_copy(r);
  for_tuples(r, 0, [&](int64_t to, int64_t number, int64_t slice) {
    for (int64_t k = 0; k < slice; ++k) combine(r.out[0], to + k, r.in[2], number * slice + k, reduction);
  });
}

// y = scatter(x, u): with reduction none d(u) is read where u was written, d(x) is zero there; with add d(x) passes.
// Where two updates without reduction meet, which one stays is undefined by the standard, and so is the gradient.
void gradient_scatter(Gradient& g, std::string_view scatter, std::string_view gather, bool has_axis) {
  const std::string reduction = g.string("reduction");
  if (reduction != "none" && reduction != "add")
    fail(ErrorCode::kUnsupported, "unsupported: the gradient of a scatter with reduction = {}", reduction);
  Attributes along;
  if (has_axis) along.set("axis", g.integer("axis"));
  g.input_gradient(2, g.op(gather, {g.gradient(), g.input(1)}, along));
  if (reduction == "add") return g.input_gradient(0, g.gradient());
  g.input_gradient(0, g.op(scatter, {g.gradient(), g.input(1), zeros_like(g, g.input(2))}, along));
}

// ---- OneHot, ReverseSequence

void infer_one_hot(Infer& i) {
  int64_t depth = 0;
  if (const Tensor* content = i.constant(1); content && content->elements() == 1) {
    depth = is_float(content->dtype()) ? whole_number(content->f64(0)) : content->i64(0);
  } else {
    const std::vector<int64_t> values = i.need_integers(1);
    i.require(values.size() == 1, "'depth' has more than one element; allowed: one");
    depth = values[0];
  }
  i.require(depth >= 0, fmt::format("depth = {}; allowed: 0 and more", depth));
  i.require(i.rank(2) == 1 && (!i.dim(2, 0).known() || i.dim(2, 0).is(2)),
            fmt::format("'values' is {}; allowed: [2], off and on", text(i.shape(2))));
  Shape result = i.shape(0);
  result.insert(result.begin() + i.axis(i.integer("axis"), int(result.size()) + 1), Dim(depth));
  i.output(0, i.dtype(2), std::move(result));
}

void reference_one_hot(Reference& r) {
  const int axis = positive_axis(r.integer("axis"), r.out[0].rank());
  const AxisSpan span = span_of(r.out[0].shape, axis);
  for (int64_t k = 0; k < r.out[0].elements(); ++k) r.out[0].copy(k, r.in[2], 0);
  for (int64_t k = 0; k < r.in[0].elements() && span.extent > 0; ++k) {
    const int64_t index = r.in[0].integer(k), row = index < 0 ? index + span.extent : index;
    if (row < 0 || row >= span.extent) continue;  // by the standard: all off
    r.out[0].copy((k / span.inner * span.extent + row) * span.inner + k % span.inner, r.in[2], 1);
  }
}

void infer_reverse_sequence(Infer& i) {
  const int64_t batch = i.integer("batch_axis"), time = i.integer("time_axis");
  i.require(i.rank(0) >= 2 && batch + time == 1 && batch * time == 0,
            fmt::format("batch_axis = {}, time_axis = {}; allowed: 0 and 1, or 1 and 0", batch, time));
  Dim joint;
  i.require(i.rank(1) == 1 && broadcast(i.dim(0, int(batch)), i.dim(1, 0), joint),
            fmt::format("'sequence_lens' is {}; allowed: one a batch item", text(i.shape(1))));
  i.same_as(0, 0);
}

void reference_reverse_sequence(Reference& r) {
  const RefArray& x = r.in[0];
  const int batch = int(r.integer("batch_axis")), time = 1 - batch;
  const std::vector<int64_t> strides = row_major_strides(x.shape);
  for (Index at(x.shape); at.more(); ++at) {
    const int64_t length = r.in[1].integer(at[batch]), t = at[time];
    if (length < 0 || length > x.dim(time))
      fail(ErrorCode::kBadInput, "ReverseSequence: length {} of a sequence of {}", length, x.dim(time));
    const int64_t from = t < length ? length - 1 - t : t;
    r.out[0].copy(at.flat(), x, at.flat() + (from - t) * strides[size_t(time)]);
  }
}

constexpr AttributeSpec kAxisZero = {"axis", 0};
Attributes axis_of(Gradient& g) {
  Attributes attributes;
  attributes.set("axis", g.integer("axis"));
  return attributes;
}

}  // namespace

constinit const OpSchema kGather = {
    .name = "Gather",
    .family = "movement",
    .kind = kMovement,
    .doc = "slices of data along axis, in the order and shape of indices; negative ones count from the end",
    .versions = {1, 11, 13},
    .inputs = {{"data"}, {"indices", kIndices}},
    .outputs = {{"output"}},
    .attributes = {kAxisZero},
    .infer = infer_gather,
    .cost = cost_of_selection,
    .reference = reference_gather,
    .gradient = [](Gradient& g) { gradient_by_selection(g, "Gather", axis_of(g)); },
    .samples = {"data=f32[5,65] indices=i64{4,0,-1,2}", "data=f32[3,7,5] indices=i64{-7,6} axis=-2",
                "data=f16[6,0] indices=i32{1,3}", "data=f32[4,3] indices=i64[0] axis=1"},
};

constinit const OpSchema kGatherElements = {
    .name = "GatherElements",
    .family = "movement",
    .kind = kMovement,
    .doc = "output[i][j] = data[indices[i][j]][j] for axis 0, and likewise for others",
    .since = 11,
    .versions = {11, 13},
    .inputs = {{"data"}, {"indices", kIndices}},
    .outputs = {{"output"}},
    .attributes = {kAxisZero},
    .infer = infer_gather_elements,
    .cost = cost_of_selection,
    .reference = reference_gather_elements,
    .gradient = [](Gradient& g) { gradient_by_selection(g, "GatherElements", axis_of(g)); },
    .samples = {"data=f32[5] indices=i64{4,0,-1,2}", "data=f32[7] indices=i32{-7,6} axis=-1",
                "data=f32[4,3] indices=i64[0,3]"},
};

constinit const OpSchema kGatherND = {
    .name = "GatherND",
    .family = "movement",
    .kind = kMovement,
    .doc = "slices of data that the tuples along the last axis of indices address, after batch_dims common axes",
    .since = 11,
    .versions = {11, 12, 13},
    .inputs = {{"data"}, {"indices", kInt64}},
    .outputs = {{"output"}},
    .attributes = {{"batch_dims", 0}},
    .infer = infer_gather_nd,
    .cost = cost_of_selection,
    .reference = reference_gather_nd,
    .gradient =
        [](Gradient& g) {
          Attributes batch;
          batch.set("batch_dims", g.integer("batch_dims"));
          gradient_by_selection(g, "GatherND", batch);
        },
    .samples = {"data=f32[5,65] indices=i64{3}", "data=f32[3,4,5] indices=i64{2,-1,4}",
                "data=f32[3,4] indices=i64[0,2]"},
};

constinit const OpSchema kScatterElements = {
    .name = "ScatterElements",
    .family = "movement",
    .kind = kMovement,
    .doc =
        "data, with output[indices[i][j]][j] = updates[i][j] for axis 0 and likewise for others; reduction: none, add, "
        "mul, max, min",
    .since = 11,
    .versions = {11, 13, 16, 18},
    .inputs = {{"data"}, {"indices", kIndices}, {"updates", kAll, "data"}},
    .outputs = {{"output"}},
    .attributes = {kAxisZero, {"reduction", "none"}},
    .infer = infer_scatter_elements,
    .cost = cost_of_copy,
    .reference = reference_scatter_elements,
    .gradient = [](Gradient& g) { gradient_scatter(g, "ScatterElements", "GatherElements", true); },
    .samples = {"data=f32[5] indices=i64{4,0,-2} updates=f32[3]",
                "data=f32[5] indices=i32{1,1} updates=f32[2] axis=-1 reduction=add",
                "data=i64[3,4] indices=i64[0,4] updates=i64[0,4]"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kScatterND = {
    .name = "ScatterND",
    .family = "movement",
    .kind = kMovement,
    .doc =
        "data, with the slices that the tuples along the last axis of indices address replaced by or combined with "
        "updates",
    .since = 11,
    .versions = {11, 13, 16, 18},
    .inputs = {{"data"}, {"indices", kInt64}, {"updates", kAll, "data"}},
    .outputs = {{"output"}},
    .attributes = {{"reduction", "none"}},
    .infer = infer_scatter_nd,
    .cost = cost_of_copy,
    .reference = reference_scatter_nd,
    .gradient = [](Gradient& g) { gradient_scatter(g, "ScatterND", "GatherND", false); },
    .samples = {"data=f32[5,65] indices=i64{3} updates=f32[65]",
                "data=f32[3,4] indices=i64{2,-1} updates=f32[] reduction=mul",
                "data=f32[3,4] indices=i64[0,2] updates=f32[0]"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kOneHot = {
    .name = "OneHot",
    .family = "movement",
    .kind = kMovement,
    .doc =
        "values[1] where the position along the new axis is the index, else values[0]; an index outside [-depth, "
        "depth) gives no values[1]",
    .since = 9,
    .versions = {9, 11},
    .inputs = {{"indices", kNumbers}, {"depth", kNumbers}, {"values"}},
    .outputs = {{"output"}},
    .attributes = {{"axis", -1}},
    .infer = infer_one_hot,
    .cost = cost_of_copy,
    .reference = reference_one_hot,
    .no_gradient = "defined for integer indices; the gradient of values is seldom asked for and not written",
    .samples = {"indices=i64{1,0,-1,7} depth=i64{5} values=f32[2]",
                "indices=i32{3,2} depth=i64{4} values=i64[2] axis=0",
                "indices=i64[0,3] depth=i64{2} values=f32[2] axis=1"},
};

constinit const OpSchema kReverseSequence = {
    .name = "ReverseSequence",
    .family = "movement",
    .kind = kMovement,
    .doc = "the first sequence_lens[b] elements of batch item b along the time axis in reverse",
    .since = 10,
    .versions = {10},
    .inputs = {{"input"}, {"sequence_lens", kInt64}},
    .outputs = {{"Y"}},
    .attributes = {{"batch_axis", 1}, {"time_axis", 0}},
    .infer = infer_reverse_sequence,
    .cost = cost_of_copy,
    .reference = reference_reverse_sequence,
    .gradient =
        [](Gradient& g) {
          Attributes axes;
          axes.set("batch_axis", g.integer("batch_axis"));
          axes.set("time_axis", g.integer("time_axis"));
          g.input_gradient(0, g.op("ReverseSequence", {g.gradient(), g.input(1)}, axes));  // its own inverse
        },
    .samples = {"input=f32[4,3,5] sequence_lens=i64{4,1,2}",
                "input=i64[2,5] sequence_lens=i64{0,5} batch_axis=0 time_axis=1"},
};

std::span<const OpSchema* const> movement_gather_ops() {
  static constexpr const OpSchema* kOps[] = {&kGather,          &kGatherElements,  &kGatherND, &kOneHot,
                                             &kReverseSequence, &kScatterElements, &kScatterND};
  return kOps;
}

}  // namespace ridgeline
