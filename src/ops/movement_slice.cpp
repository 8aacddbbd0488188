// Operators that cut tensors up, join, repeat and surround them: Slice, Split, Concat, Tile, Pad.
// Source: the ONNX operator standard, ai.onnx.
#include <algorithm>
#include <limits>

#include "ops/movement.h"

namespace ridgeline {

namespace {

constexpr int64_t kFar =
    std::numeric_limits<int32_t>::max();  // exporters write INT32_MAX and INT64_MAX for "to the end"

// ---- Slice

// Is this expression negative for all that is likely: with every symbol large?
bool is_negative(const Dim& d) {
  if (d.known()) return d.value() < 0;
  std::vector<std::string> symbols;
  d.collect_symbols(symbols);
  Bindings large;
  for (const std::string& symbol : symbols) large[symbol] = 100003;
  return d.evaluate(large) < 0;
}

bool reaches_end(const Dim& at, const Dim& extent) { return at == extent || (at.known() && at.value() >= kFar); }

// max(d, 0), where d is not already a bare extent or symbol.
Dim clip_at_zero(const Dim& d) { return d.known() ? Dim(std::max<int64_t>(d.value(), 0)) : max(d, Dim(0)); }

// Length of extent[start:end:step], in the simplest form for the cases that occur, so that equal lengths have equal
// texts: x[1:] and x[:-1] are both max(n - 1, 0).
Dim slice_length(const Dim& extent, const Dim& start, const Dim& end, int64_t step) {
  if (extent.known() && start.known() && end.known()) {
    const int64_t n = extent.value();
    auto clamped = [&](int64_t at, int64_t low, int64_t high) { return std::clamp(at < 0 ? at + n : at, low, high); };
    if (step > 0)
      return std::max<int64_t>(0, (clamped(end.value(), 0, n) - clamped(start.value(), 0, n) + step - 1) / step);
    if (n == 0) return 0;
    const int64_t from = clamped(start.value(), 0, n - 1), to = clamped(end.value(), -1, n - 1);
    return std::max<int64_t>(0, (from - to - step - 1) / -step);
  }
  if (step < 0) {
    const Dim from = reaches_end(start, extent) || start.is(-1)
                         ? extent - Dim(1)
                         : min(is_negative(start) ? extent + start : start, extent - Dim(1));
    const Dim to = end.known() && end.value() < -kFar ? Dim(-1) : max(is_negative(end) ? extent + end : end, Dim(-1));
    const Dim length = from - to;
    return ceil_div(length == extent ? length : clip_at_zero(length), Dim(-step));
  }
  Dim length;
  const bool to_end = reaches_end(end, extent);
  if (start.is(0)) {
    length = to_end ? extent : is_negative(end) ? clip_at_zero(extent + end) : min(end, extent);
  } else if (to_end) {
    length = is_negative(start) ? min(start * Dim(-1), extent) : clip_at_zero(extent - start);
  } else if (!is_negative(start) && is_negative(end)) {
    length = clip_at_zero(extent + end - start);
  } else {
    auto placed = [&](const Dim& at) { return is_negative(at) ? clip_at_zero(extent + at) : min(at, extent); };
    const bool same_sign = is_negative(start) == is_negative(end);
    const Dim difference = end - start;
    if (same_sign && difference.known() && difference.value() <= 0) return 0;
    length = clip_at_zero(placed(end) - placed(start));
  }
  return step == 1 ? length : ceil_div(length, Dim(step));
}

struct SliceAxis {
  int axis;
  int64_t start, step;  // start inside the extent
};

std::vector<int64_t> slice_axes(const Infer& i, size_t count) {
  if (i.has(3)) return i.need_integers(3);
  std::vector<int64_t> all(count);
  for (size_t k = 0; k < count; ++k) all[k] = int64_t(k);
  return all;
}

void infer_slice(Infer& i) {
  Shape result = i.shape(0);
  const std::vector<Dim> starts = i.need_values(1), ends = i.need_values(2);
  const std::vector<int64_t> axes = slice_axes(i, starts.size());
  const std::vector<int64_t> steps = i.has(4) ? i.need_integers(4) : std::vector<int64_t>(starts.size(), 1);
  i.require(starts.size() == ends.size() && starts.size() == axes.size() && starts.size() == steps.size(),
            fmt::format("starts, ends, axes and steps have {}, {}, {} and {} elements; allowed: as many each",
                        starts.size(), ends.size(), axes.size(), steps.size()));
  i.axes(axes, int(result.size()));
  for (size_t k = 0; k < starts.size(); ++k) {
    i.require(steps[k] != 0, "a step is 0");
    Dim& extent = result[size_t(i.axis(axes[k], int(result.size())))];
    extent = slice_length(extent, starts[k], ends[k], steps[k]);
  }
  i.output(0, i.dtype(0), result);

  const auto values = i.values(0);
  if (!values || result.size() != 1 || !result[0].known() || starts.size() != 1 || !starts[0].known()) return;
  const int64_t n = int64_t(values->size()), at = starts[0].value() < 0 ? starts[0].value() + n : starts[0].value();
  const int64_t begin = std::clamp<int64_t>(at, 0, std::max<int64_t>(0, steps[0] > 0 ? n : n - 1));
  std::vector<Dim> picked;
  for (int64_t k = 0; k < result[0].value(); ++k) picked.push_back((*values)[size_t(begin + k * steps[0])]);
  i.output_values(0, std::move(picked));
}

void reference_slice(Reference& r) {
  const RefArray& x = r.in[0];
  std::vector<int64_t> start(size_t(x.rank()), 0), step(size_t(x.rank()), 1);
  const std::vector<int64_t> starts = integers_of(r.in[1]), steps = integers_of(r, 4);
  std::vector<int64_t> axes = integers_of(r, 3);
  for (size_t k = 0; k < starts.size(); ++k) {
    const int a = positive_axis(r.has(3) ? axes[k] : int64_t(k), x.rank());
    const int64_t n = x.dim(a), s = r.has(4) ? steps[k] : 1, at = starts[k] < 0 ? starts[k] + n : starts[k];
    step[size_t(a)] = s;
    start[size_t(a)] = std::clamp<int64_t>(at, 0, std::max<int64_t>(0, s > 0 ? n : n - 1));
  }
  const std::vector<int64_t> strides = row_major_strides(x.shape);
  for (Index at(r.out[0].shape); at.more(); ++at) {
    int64_t from = 0;
    for (size_t a = 0; a < start.size(); ++a) from += (start[a] + at[int(a)] * step[a]) * strides[a];
    r.out[0].copy(at.flat(), x, from);
  }
}

// ---- Concat, Split

void infer_concat(Infer& i) {
  const int rank = i.rank(0);
  i.require(rank > 0, "cannot join scalars; allowed: rank 1 and above");
  const int axis = i.axis(i.integer("axis"), rank);
  Shape result = i.shape(0);
  for (int k = 1; k < i.inputs(); ++k) {
    const Shape& other = i.shape(k);
    i.require(int(other.size()) == rank,
              fmt::format("input {} is {}, input 0 is {}; allowed: equal ranks", k, text(other), text(i.shape(0))));
    for (int a = 0; a < rank; ++a) {
      Dim& extent = result[size_t(a)];
      const Dim& theirs = other[size_t(a)];
      if (a == axis) {
        extent = extent + theirs;
        continue;
      }
      i.require(!extent.known() || !theirs.known() || extent == theirs,
                fmt::format("input {} is {}, input 0 is {}; allowed: equal extents but along axis {}", k, text(other),
                            text(i.shape(0)), axis));
      if (theirs.known()) extent = theirs;
    }
  }
  i.output(0, i.dtype(0), result);
  if (rank != 1) return;
  std::vector<Dim> joined;
  for (int k = 0; k < i.inputs(); ++k) {
    const auto values = i.values(k);
    if (!values) return;
    joined.insert(joined.end(), values->begin(), values->end());
  }
  i.output_values(0, std::move(joined));
}

void reference_concat(Reference& r) {
  const int axis = positive_axis(r.integer("axis"), r.out[0].rank());
  const AxisSpan out = span_of(r.out[0].shape, axis);
  int64_t offset = 0;
  for (const RefArray& x : r.in) {
    const int64_t rows = x.dim(axis) * out.inner;
    for (int64_t o = 0; o < out.outer; ++o) {
      for (int64_t k = 0; k < rows; ++k) r.out[0].copy(o * out.extent * out.inner + offset + k, x, o * rows + k);
    }
    offset += rows;
  }
}

void gradient_concat(Gradient& g) {
  const int64_t axis = positive_axis(g.integer("axis"), g.rank(g.input(0)));
  Attributes along;
  along.set("axis", axis);
  std::vector<V> sizes;
  Attributes one_extent, vector;
  one_extent.set("start", axis);
  one_extent.set("end", axis + 1);
  vector.set("axis", int64_t(0));
  for (int k = 0; k < g.inputs(); ++k) sizes.push_back(g.op("Shape", {g.input(k)}, one_extent));
  const std::vector<V> parts = g.ops("Split", {g.gradient(), g.op("Concat", sizes, vector)}, g.inputs(), along);
  for (int k = 0; k < g.inputs(); ++k) g.input_gradient(k, parts[size_t(k)]);
}

void infer_split(Infer& i) {
  const int axis = i.axis(i.integer("axis"), i.rank(0)), outputs = i.outputs();
  const Dim extent = i.dim(0, axis);
  std::vector<Dim> sizes;
  if (i.has(1)) {
    i.require(!i.attributes().has("num_outputs"), "both 'split' and num_outputs are given; allowed: one of them");
    sizes = i.need_values(1);
    Dim sum = 0;
    for (const Dim& size : sizes) sum = sum + size;
    i.require(!sum.known() || !extent.known() || sum == extent,
              fmt::format("split {} does not add up to extent {} of axis {}", text(sizes), extent.text(), axis));
  } else {
    const int64_t count = i.attributes().integer("num_outputs", outputs);
    i.require(count > 0 && count == outputs,
              fmt::format("num_outputs = {}, but the node has {} outputs; allowed: the same number", count, outputs));
    // The last one is smaller if the extent does not divide.
    const Dim chunk = ceil_div(extent, Dim(count));
    for (int64_t k = 0; k + 1 < count; ++k) sizes.push_back(chunk);
    sizes.push_back(extent - chunk * Dim(count - 1));
    i.require(!sizes.back().known() || sizes.back().value() >= 0,
              fmt::format("extent {} does not split into {} parts", extent.text(), count));
  }
  i.require(int(sizes.size()) == outputs, fmt::format("{} parts for {} outputs", sizes.size(), outputs));
  const auto values = i.rank(0) == 1 ? i.values(0) : std::nullopt;
  int64_t at = 0;
  bool whole = values.has_value();
  for (int k = 0; k < outputs; ++k) {
    Shape part = i.shape(0);
    part[size_t(axis)] = sizes[size_t(k)];
    i.output(k, i.dtype(0), part);
    whole = whole && sizes[size_t(k)].known();
    if (!whole) continue;
    i.output_values(k, {values->begin() + at, values->begin() + at + sizes[size_t(k)].value()});
    at += sizes[size_t(k)].value();
  }
}

void reference_split(Reference& r) {
  const RefArray& x = r.in[0];
  const int axis = positive_axis(r.integer("axis"), x.rank());
  const AxisSpan in = span_of(x.shape, axis);
  int64_t offset = 0;
  for (RefArray& y : r.out) {
    if (y.dtype == DType::kNone) continue;
    const int64_t rows = y.dim(axis) * in.inner;
    for (int64_t o = 0; o < in.outer; ++o) {
      for (int64_t k = 0; k < rows; ++k) y.copy(o * rows + k, x, o * in.extent * in.inner + offset + k);
    }
    offset += rows;
  }
}

// ---- Tile, Pad

void infer_tile(Infer& i) {
  Shape result = i.shape(0);
  const std::vector<Dim> repeats = i.need_values(1);
  i.require(repeats.size() == result.size(),
            fmt::format("{} repeats for {}; allowed: one an axis", repeats.size(), text(result)));
  for (size_t a = 0; a < result.size(); ++a) result[a] = result[a] * repeats[a];
  i.output(0, i.dtype(0), result);
  const auto values = i.values(0);
  if (!values || result.size() != 1 || !repeats[0].known()) return;
  std::vector<Dim> repeated;
  for (int64_t k = 0; k < repeats[0].value(); ++k) repeated.insert(repeated.end(), values->begin(), values->end());
  i.output_values(0, std::move(repeated));
}

void reference_tile(Reference& r) {
  const std::vector<int64_t> strides = row_major_strides(r.in[0].shape);
  for (Index at(r.out[0].shape); at.more(); ++at) {
    int64_t from = 0;
    for (int a = 0; a < r.in[0].rank(); ++a) from += at[a] % r.in[0].dim(a) * strides[size_t(a)];
    r.out[0].copy(at.flat(), r.in[0], from);
  }
}

void infer_pad(Infer& i) {
  Shape result = i.shape(0);
  const int rank = int(result.size());
  const std::vector<Dim> pads = i.need_values(1);
  std::vector<int64_t> axes;
  if (i.has(3))
    axes = i.need_integers(3);
  else
    for (int a = 0; a < rank; ++a) axes.push_back(a);
  i.axes(axes, rank);
  i.require(pads.size() == 2 * axes.size(),
            fmt::format("{} pads for {} axes; allowed: a begin for each axis, then an end for each", pads.size(),
                        axes.size()));
  const std::string mode = i.string("mode");
  i.require(mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap",
            fmt::format("mode = '{}'; allowed: constant, reflect, edge, wrap", mode));
  if (i.has(2))
    i.require(product(i.shape(2)).is(1),
              fmt::format("'constant_value' has shape {}; allowed: a scalar", text(i.shape(2))));
  for (size_t k = 0; k < axes.size(); ++k) {
    Dim& extent = result[size_t(i.axis(axes[k], rank))];
    const Dim grown = extent + pads[k] + pads[k + axes.size()];
    i.require(mode == "constant" || !extent.is(0) || grown.is(0),
              fmt::format("an empty axis cannot be padded in mode '{}'", mode));
    i.require(!grown.known() || grown.value() >= 0,
              fmt::format("pads take more than the {} elements of axis {}", extent.text(), axes[k]));
    extent = grown;
  }
  i.output(0, i.dtype(0), std::move(result));
}

// Where position p of a padded axis comes from; -1: from the constant. n > 0 unless the mode is constant.
int64_t pad_source(std::string_view mode, int64_t p, int64_t n) {
  if (p >= 0 && p < n) return p;
  if (mode == "constant") return -1;
  if (mode == "edge") return p < 0 ? 0 : n - 1;
  if (mode == "wrap") return (p % n + n) % n;
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1), q = (p % period + period) % period;
  return q < n ? q : period - q;
}

void reference_pad(Reference& r) {
  const RefArray& x = r.in[0];
  const std::vector<int64_t> pads = integers_of(r.in[1]), axes = integers_of(r, 3),
                             strides = row_major_strides(x.shape);
  std::vector<int64_t> before(size_t(x.rank()), 0);
  for (size_t k = 0; k < pads.size() / 2; ++k)
    before[size_t(r.has(3) ? positive_axis(axes[k], x.rank()) : int64_t(k))] = pads[k];
  const std::string mode = r.string("mode");
  for (Index at(r.out[0].shape); at.more(); ++at) {
    int64_t from = 0;
    bool inside = true;
    for (int a = 0; a < x.rank(); ++a) {
      const int64_t source = pad_source(mode, at[a] - before[size_t(a)], x.dim(a));
      inside = inside && source >= 0;
      from += source * strides[size_t(a)];
    }
    if (inside)
      r.out[0].copy(at.flat(), x, from);
    else if (r.has(2))
      r.out[0].copy(at.flat(), r.in[2], 0);
  }
}

void gradient_pad(Gradient& g) {
  Attributes mode;
  mode.set("mode", g.string("mode"));
  if (g.string("mode") != "constant") return gradient_by_selection(g, "Pad", mode);
  std::vector<V> inputs = {g.gradient(), g.neg(g.input(1))};
  if (g.has(3)) inputs.insert(inputs.end(), {V{}, g.input(3)});
  g.input_gradient(0, g.op("Pad", inputs, mode));  // negative pads cut
}

}  // namespace

constinit const OpSchema kSlice = {
    .name = "Slice",
    .family = "movement",
    .kind = kMovement,
    .doc =
        "elements start, start + step, ... before end of each of axes; negative positions count from the end, all are "
        "clamped",
    .since = 10,
    .versions = {1, 10, 11, 13},
    .inputs = {{"data"},
               {"starts", kIndices},
               {"ends", kIndices, "starts"},
               optional_input("axes", kIndices, "starts"),
               optional_input("steps", kIndices, "starts")},
    .outputs = {{"output"}},
    .infer = infer_slice,
    .cost = cost_of_selection,
    .reference = reference_slice,
    .gradient = [](Gradient& g) { gradient_by_selection(g, "Slice"); },
    .samples = {"data=f32[4,7,65] starts=i64{1,0} ends=i64{3,5}",
                "data=f32[5,6] starts=i64{-3} ends=i64{9223372036854775807} axes=i64{-1}",
                "data=i64[7] starts=i64{-1} ends=i64{-9223372036854775808} axes=i64{0} steps=i64{-2}",
                "data=f16[3,5] starts=i32{4} ends=i32{2} axes=i32{1}",
                "data=f32[2,9,3] starts=i64{1} ends=i64{8} axes=i64{1} steps=i64{3}"},
};

constinit const OpSchema kConcat = {
    .name = "Concat",
    .family = "movement",
    .kind = kMovement,
    .doc = "the inputs one after another along axis",
    .versions = {1, 4, 11, 13},
    .inputs = {{"inputs", kAll, "inputs", false, true}},
    .outputs = {{"concat_result"}},
    .attributes = {{"axis", AttributeType::kInt, kRequired}},
    .infer = infer_concat,
    .cost = cost_of_copy,
    .reference = reference_concat,
    .gradient = gradient_concat,
    .samples = {"inputs=f32[2,3,65] inputs1=f32[2,5,65] axis=1", "inputs=f16[4] axis=0",
                "inputs=i64[3,0] inputs1=i64[3,2] inputs2=i64[3,1] axis=-1"},
};

constinit const OpSchema kSplit = {
    .name = "Split",
    .family = "movement",
    .kind = kMovement,
    .doc = "parts along axis, of the sizes in split, or num_outputs equal ones of which the last may be smaller",
    .since = 13,
    .versions = {1, 2, 11, 13, 18},
    .inputs = {{"input"}, optional_input("split", kInt64)},
    .outputs = {{"outputs", false, true}},
    .attributes = {{"axis", 0}, {"num_outputs", AttributeType::kInt}},
    .infer = infer_split,
    .cost = cost_of_copy,
    .reference = reference_split,
    .gradient =
        [](Gradient& g) {
          Attributes along;
          along.set("axis", g.integer("axis"));
          std::vector<V> parts;
          for (int k = 0; k < g.outputs(); ++k)
            parts.push_back(g.has_gradient(k) ? g.gradient(k) : zeros_like(g, g.output(k)));
          g.input_gradient(0, g.op("Concat", parts, along));
        },
    .samples = {"input=f32[2,7,3] split=i64{2,5} axis=1 outputs=2", "input=f32[7] num_outputs=3 outputs=3",
                "input=i64[0,6] num_outputs=2 axis=-1 outputs=2"},
};

constinit const OpSchema kTile = {
    .name = "Tile",
    .family = "movement",
    .kind = kMovement,
    .doc = "the input repeated along each axis",
    .since = 6,
    .versions = {1, 6, 13},
    .inputs = {{"input"}, {"repeats", kInt64}},
    .outputs = {{"output"}},
    .infer = infer_tile,
    .cost = cost_of_copy,
    .reference = reference_tile,
    .gradient = [](Gradient& g) { gradient_by_selection(g, "Tile"); },
    .samples = {"input=f32[2,3,5] repeats=i64{1,2,3}", "input=f16[7] repeats=i64{0}",
                "input=i64[1,4] repeats=i64{3,1}"},
};

constinit const OpSchema kPad = {
    .name = "Pad",
    .family = "movement",
    .kind = kMovement,
    .doc =
        "elements added before and after each of axes (cut where negative): a constant, reflected, the edge's, or "
        "wrapped around",
    .since = 11,
    .versions = {1, 2, 11, 13, 18, 19, 21, 23, 24, 25},
    .inputs = {{"data", kAny},
               {"pads", kInt64},
               optional_input("constant_value", kAny, "data"),
               optional_input("axes", kIndices)},
    .outputs = {{"output"}},
    .attributes = {{"mode", "constant"}},
    .infer = infer_pad,
    .cost = cost_of_copy,
    .reference = reference_pad,
    .gradient = gradient_pad,
    .samples = {"data=f32[2,3,5] pads=i64{0,1,2,1,0,3}", "data=f32[3,4] pads=i64{2,3} axes=i64{-1} mode=reflect",
                "data=f32[3,4] pads=i64{1,1,2,2} mode=edge", "data=i64[3,4] pads=i64{4,1,2,5} mode=wrap",
                "data=f32[5,6] pads=i64{-1,2,0,-3}", "data=f16[0,4] pads=i64{1,0,1,0} constant_value=f16[]"},
};

std::span<const OpSchema* const> movement_slice_ops() {
  static constexpr const OpSchema* kOps[] = {&kConcat, &kPad, &kSlice, &kSplit, &kTile};
  return kOps;
}

}  // namespace ridgeline
