// Operators that make a tensor from a shape or a few numbers, or pick by rank order and position.
// Source: the ONNX operator standard, ai.onnx.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "ops/movement.h"

namespace ridgeline {

namespace {

Tensor fill_value(const Attributes& attributes) {
  const AttributeValue* value = attributes.find("value");
  if (!value) return Tensor::scalar(0.0f);
  const Tensor* tensor = std::get_if<Tensor>(value);
  if (!tensor || tensor->elements() != 1)
    fail(ErrorCode::kBadModel, "ConstantOfShape: 'value' must be a tensor of one element");
  return *tensor;
}

void infer_constant_of_shape(Infer& i) {
  const Shape shape = i.need_values(0);
  const Tensor value = fill_value(i.attributes());
  i.output(0, value.dtype(), shape);
  if (shape.size() > 1 || !known(shape) || is_float(value.dtype())) return;
  const int64_t count = shape.empty() ? 1 : shape[0].value();
  if (count <= 1024) i.output_values(0, std::vector<Dim>(size_t(count), Dim(value.i64(0))));
}

void reference_constant_of_shape(Reference& r) {
  const Tensor value = fill_value(*r.attributes);
  RefArray& y = r.out[0];
  if (y.is_float())
    std::fill(y.f.begin(), y.f.end(), value.f64(0));
  else
    std::fill(y.i.begin(), y.i.end(), value.i64(0));
}

// ceil((limit - start) / delta), at least 0
int64_t range_length(double start, double limit, double delta) {
  const double length = std::max(0.0, std::ceil((limit - start) / delta));
  return int64_t(std::min(length, 0x1p62));  // far beyond what a shape may have
}

void infer_range(Infer& i) {
  for (int k = 0; k < 3; ++k) {
    i.require(product(i.shape(k)).is(1),
              fmt::format("'{}' has shape {}; allowed: a scalar", i.op().inputs[k].name, text(i.shape(k))));
  }
  if (is_float(i.dtype(0))) {
    double number[3];
    for (int k = 0; k < 3; ++k) {
      const Tensor* content = i.constant(k);
      if (!content) i.need_values(k);  // throws: floats are known as constants only
      number[k] = content->f64(0);
    }
    i.require(number[2] != 0, "delta is 0");
    return i.output(0, i.dtype(0), {range_length(number[0], number[1], number[2])});
  }
  const Dim start = i.need_values(0)[0], limit = i.need_values(1)[0];
  const int64_t delta = i.need_integers(2)[0];
  i.require(delta != 0, "delta is 0");
  const Dim difference = delta > 0 ? limit - start : start - limit;
  Dim length = ceil_div(difference, Dim(std::abs(delta)));
  // A length from zero to an extent is that extent; others may come out negative.
  if (length.known())
    length = std::max<int64_t>(0, length.value());
  else if (!start.is(0))
    length = max(length, Dim(0));
  i.output(0, i.dtype(0), {length});
  if (!length.known() || length.value() > 1024) return;
  std::vector<Dim> values;
  for (int64_t k = 0; k < length.value(); ++k) values.push_back(start + Dim(k * delta));
  i.output_values(0, std::move(values));
}

void reference_range(Reference& r) {
  for (int64_t k = 0; k < r.out[0].elements(); ++k) {
    if (r.out[0].is_float())
      r.out[0].f[size_t(k)] = r.in[0].f[0] + double(k) * r.in[2].f[0];
    else
      r.out[0].i[size_t(k)] = r.in[0].i[0] + k * r.in[2].i[0];
  }
}

void infer_eye_like(Infer& i) {
  i.require(i.rank(0) == 2, fmt::format("'input' is {}; allowed: rank 2", text(i.shape(0))));
  const DType asked = dtype_of_onnx(int(i.integer("dtype")));
  i.output(0, i.attributes().has("dtype") ? asked : i.dtype(0), i.shape(0));
  i.require(i.results()[0].dtype != DType::kNone,
            fmt::format("dtype = {} is unsupported; allowed: the numbers of {}", i.integer("dtype"), text(kAll)));
}

void reference_eye_like(Reference& r) {
  const int64_t k = r.integer("k");
  for (Index at(r.out[0].shape); at.more(); ++at) r.out[0].set(at.flat(), at[1] - at[0] == k ? 1 : 0);
}

void reference_trilu(Reference& r) {
  const int64_t k = r.has(1) ? r.in[1].integer(0) : 0;
  const bool upper = r.flag("upper");
  const int rank = r.in[0].rank();
  for (Index at(r.in[0].shape); at.more(); ++at) {
    const int64_t diagonal = at[rank - 1] - at[rank - 2];
    if (upper ? diagonal >= k : diagonal <= k) r.out[0].copy(at.flat(), r.in[0], at.flat());
  }
}

void infer_trilu(Infer& i) {
  i.require(i.rank(0) >= 2, fmt::format("'input' is {}; allowed: rank 2 and above", text(i.shape(0))));
  if (i.has(1))
    i.require(product(i.shape(1)).is(1), fmt::format("'k' has shape {}; allowed: a scalar", text(i.shape(1))));
  i.same_as(0, 0);
}

void infer_cum_sum(Infer& i) {
  i.require(i.rank(0) >= 1, "'x' is a scalar; allowed: rank 1 and above");
  i.require(product(i.shape(1)).is(1), fmt::format("'axis' has shape {}; allowed: a scalar", text(i.shape(1))));
  if (const auto axis = i.values(1); axis && (*axis)[0].known()) i.axis((*axis)[0].value(), i.rank(0));
  i.same_as(0, 0);
}

void reference_cum_sum(Reference& r) {
  const RefArray& x = r.in[0];
  const AxisSpan span = span_of(x.shape, positive_axis(r.in[1].integer(0), x.rank()));
  const bool exclusive = r.flag("exclusive"), reverse = r.flag("reverse");
  for (int64_t row = 0; row < span.outer * span.inner; ++row) {
    const int64_t base = row / span.inner * span.extent * span.inner + row % span.inner;
    double sum = 0;
    uint64_t integer_sum = 0;  // integers wrap
    for (int64_t k = 0; k < span.extent; ++k) {
      const int64_t at = base + (reverse ? span.extent - 1 - k : k) * span.inner;
      if (x.is_float()) {
        r.out[0].f[size_t(at)] = exclusive ? sum : sum + x.f[size_t(at)];
        sum += x.f[size_t(at)];
      } else {
        const uint64_t value = uint64_t(x.i[size_t(at)]);
        r.out[0].i[size_t(at)] = int64_t(exclusive ? integer_sum : integer_sum + value);
        integer_sum += value;
      }
    }
  }
}

void infer_top_k(Infer& i) {
  i.require(i.rank(0) >= 1, "'X' is a scalar; allowed: rank 1 and above");
  const int axis = i.axis(i.integer("axis"), i.rank(0));
  const std::vector<Dim> k = i.need_values(1);
  i.require(k.size() == 1, fmt::format("'K' has {} elements; allowed: one", k.size()));
  Shape result = i.shape(0);
  Dim& extent = result[size_t(axis)];
  i.require(!k[0].known() || k[0].value() >= 0, fmt::format("K = {}; allowed: 0 and more", k[0].text()));
  i.require(!k[0].known() || !extent.known() || k[0].value() <= extent.value(),
            fmt::format("K = {} exceeds the {} elements of axis {}", k[0].text(), extent.text(), axis));
  extent = k[0];
  i.output(0, i.dtype(0), result);
  if (i.wants(1)) i.output(1, DType::kI64, result);
}

// Equal values: the lower index first. NaN counts as largest.
void reference_top_k(Reference& r) {
  const RefArray& x = r.in[0];
  const int axis = positive_axis(r.integer("axis"), x.rank());
  const AxisSpan span = span_of(x.shape, axis);
  const bool largest = r.flag("largest");
  const int64_t count = r.out[0].dim(axis);
  std::vector<int64_t> order(static_cast<size_t>(span.extent));
  for (int64_t row = 0; row < span.outer * span.inner; ++row) {
    auto flat = [&](int64_t k, int64_t extent) {
      return (row / span.inner * extent + k) * span.inner + row % span.inner;
    };
    auto less = [&](int64_t a, int64_t b) {
      if (x.is_float()) {
        const double p = x.f[size_t(a)], q = x.f[size_t(b)];
        return std::isnan(q) ? !std::isnan(p) : p < q;
      }
      const int64_t p = x.i[size_t(a)], q = x.i[size_t(b)];
      return x.dtype == DType::kU64 ? uint64_t(p) < uint64_t(q) : p < q;
    };
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const int64_t p = flat(a, span.extent), q = flat(b, span.extent);
      return largest ? less(q, p) : less(p, q);
    });
    for (int64_t k = 0; k < count; ++k) {
      r.out[0].copy(flat(k, count), x, flat(order[size_t(k)], span.extent));
      if (r.wants(1)) r.out[1].i[size_t(flat(k, count))] = order[size_t(k)];
    }
  }
}

void gradient_top_k(Gradient& g) {
  Attributes along, same;
  along.set("axis", g.integer("axis"));
  for (std::string_view name : {"axis", "largest", "sorted"}) same.set(name, g.integer(name));
  V places = g.ops("TopK", {g.input(0), g.input(1)}, 2, same)[1];  // computed again: the node may not have wanted them
  g.input_gradient(0, g.op("ScatterElements", {zeros_like(g, g.input(0)), places, g.gradient()}, along));
}

int64_t count_nonzero(const Tensor& x) {
  int64_t count = 0;
  for (int64_t k = 0; k < x.elements(); ++k) count += x.f64(k) != 0;
  return count;
}

void infer_non_zero(Infer& i) {
  const Tensor* x = i.constant(0);
  if (!x) {
    throw NeedsValues(
        0, "NonZero: unsupported: the output's shape depends on the content of input 'X', which is not a constant");
  }
  i.output(0, DType::kI64, {int64_t(i.rank(0)), count_nonzero(*x)});
}

void reference_non_zero(Reference& r) {
  int64_t column = 0;
  for (Index at(r.in[0].shape); at.more(); ++at) {
    if (r.in[0].number(at.flat()) == 0) continue;
    for (int a = 0; a < r.in[0].rank(); ++a) r.out[0].i[size_t(a * r.out[0].dim(1) + column)] = at[a];
    ++column;
  }
}

Attributes cum_sum_attributes(Gradient& g) {
  Attributes attributes;
  attributes.set("exclusive", g.integer("exclusive"));
  attributes.set("reverse", int64_t(!g.flag("reverse")));
  return attributes;
}

constexpr TypeSet kRangeTypes = kFloats | type_bit(DType::kI16) | kIndices;

}  // namespace

constinit const OpSchema kConstantOfShape = {
    .name = "ConstantOfShape",
    .family = "movement",
    .kind = kMovement,
    .doc = "a tensor of the given shape filled with value",
    .since = 9,
    .versions = {9, 20, 21, 23, 24},
    .inputs = {{"input", kInt64}},
    .outputs = {{"output"}},
    .attributes = {{"value", AttributeType::kTensor}},
    .infer = infer_constant_of_shape,
    .cost = cost_of_copy,
    .reference = reference_constant_of_shape,
    .no_gradient = kNoGradientDiscrete,
    .samples = {"input=i64{2,3,65}", "input=i64{0,4}", "input=i64{}"},
};

constinit const OpSchema kRange = {
    .name = "Range",
    .family = "movement",
    .kind = kMovement,
    .doc = "start, start + delta, ... before limit",
    .since = 11,
    .versions = {11},
    .inputs = {{"start", kRangeTypes}, {"limit", kRangeTypes, "start"}, {"delta", kRangeTypes, "start"}},
    .outputs = {{"output"}},
    .infer = infer_range,
    .cost = cost_of_copy,
    .reference = reference_range,
    .no_gradient = "its length depends on the inputs",
    .samples = {"start=i64{0} limit=i64{65} delta=i64{1}", "start=i32{10} limit=i32{4} delta=i32{-3}",
                "start=i64{5} limit=i64{1} delta=i64{2}"},
    .tolerance = Tolerance::elementwise(2),
};

constinit const OpSchema kEyeLike = {
    .name = "EyeLike",
    .family = "movement",
    .kind = kMovement,
    .doc = "1 on diagonal k, else 0, of the input's shape",
    .since = 9,
    .versions = {9, 22},
    .inputs = {{"input"}},
    .outputs = {{"output"}},
    .attributes = {{"dtype", AttributeType::kInt}, {"k", 0}},
    .infer = infer_eye_like,
    .cost = [](const Problem& p) { return Cost{.write_bytes = p.write_bytes()}; },
    .reference = reference_eye_like,
    .no_gradient = "the input's content is not read",
    .samples = {"input=f32[3,5]", "input=i64[5,3] k=-2 dtype=1", "input=f16[0,3] k=1"},
};

constinit const OpSchema kTrilu = {
    .name = "Trilu",
    .family = "movement",
    .kind = kMovement,
    .doc = "the upper or lower triangle of the last two axes from diagonal k, the rest 0",
    .since = 14,
    .versions = {14},
    .inputs = {{"input"}, optional_input("k", kInt64)},
    .outputs = {{"output"}},
    .attributes = {{"upper", 1}},
    .infer = infer_trilu,
    .cost = cost_of_copy,
    .reference = reference_trilu,
    .gradient =
        [](Gradient& g) {
          Attributes upper;
          upper.set("upper", g.integer("upper"));
          g.input_gradient(0, g.op("Trilu", {g.gradient(), g.has(1) ? g.input(1) : V{}}, upper));
        },
    .samples = {"input=f32[2,5,7]", "input=i64[4,3] k=i64{-1} upper=0", "input=f32[3,0,4] k=i64{2}",
                "input=bool[3,3] k=i64{9}"},
};

constinit const OpSchema kCumSum = {
    .name = "CumSum",
    .family = "movement",
    .kind = OpKind::kReduction,
    .doc = "running sums along axis; exclusive: without the element itself; reverse: from the end",
    .since = 11,
    .versions = {11, 14},
    .inputs = {{"x", kFloats | kIndices | type_bit(DType::kU32) | type_bit(DType::kU64)}, {"axis", kIndices}},
    .outputs = {{"y"}},
    .attributes = {{"exclusive", 0}, {"reverse", 0}},
    .infer = infer_cum_sum,
    .reference = reference_cum_sum,
    .gradient =
        [](Gradient& g) {
          g.input_gradient(0, g.op("CumSum", {g.gradient(), g.input(1)}, cum_sum_attributes(g)));
        },
    .samples = {"x=f32[3,65] axis=i64{1}", "x=f32[4,5,3] axis=i32{-2} exclusive=1", "x=i64[7] axis=i64{0} reverse=1",
                "x=f16[0,3] axis=i64{0} exclusive=1 reverse=1"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kTopK = {
    .name = "TopK",
    .family = "movement",
    .kind = OpKind::kReduction,
    .doc =
        "the K largest or smallest elements along axis in order, and their positions; equal ones: the lower position "
        "first",
    .since = 10,
    .versions = {1, 10, 11, 24},
    .inputs = {{"X", kNumbers}, {"K", kInt64}},
    .outputs = {{"Values"}, optional_output("Indices")},
    .attributes = {{"axis", -1}, {"largest", 1}, {"sorted", 1}},
    .infer = infer_top_k,
    .cost = cost_of_copy,
    .reference = reference_top_k,
    .gradient = gradient_top_k,
    .samples = {"X=f32[3,65] K=i64{5}", "X=f32[7,3] K=i64{7} axis=0 largest=0", "X=i64[2,4] K=i64{0}"},
};

constinit const OpSchema kNonZero = {
    .name = "NonZero",
    .family = "movement",
    .kind = kMovement,
    .doc = "positions of the elements that are not 0, a column each, in row-major order; the input must be a constant",
    .since = 9,
    .versions = {9, 13},
    .inputs = {{"X"}},
    .outputs = {{"Y"}},
    .infer = infer_non_zero,
    .cost = cost_of_copy,
    .reference = reference_non_zero,
    .no_gradient = kNoGradientDiscrete,
    .samples = {"X=i64{0,3,0,1}", "X=i64{}"},
};

std::span<const OpSchema* const> movement_make_ops() {
  static constexpr const OpSchema* kOps[] = {&kConstantOfShape, &kCumSum, &kEyeLike, &kNonZero,
                                             &kRange,           &kTopK,   &kTrilu};
  return kOps;
}

}  // namespace ridgeline
