// Reductions: sum, mean, maximum and their relatives over a set of axes, and the place of the extreme along one axis.
// Source: the ONNX standard, operators ReduceSum-13, ReduceMean-18 and the others at 18 or 20, ArgMax-13, ArgMin-13.
#include <cmath>
#include <limits>
#include <numeric>

#include "ir/builder.h"
#include "ir/infer.h"
#include "ir/problem.h"
#include "ir/reference.h"
#include "ops/catalogue.h"

namespace ridgeline {
namespace {

enum class Fold { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kLogSum, kLogSumExp, kSumSquare };

/// The axes that are reduced: those given, else all, unless `noop_with_empty_axes` says none (the elementwise part of
/// the operator, such as the square of ReduceSumSquare, is applied even then).
template <typename Context>
std::vector<int> reduced_axes(const Context& c, const std::vector<int64_t>& given, int rank) {
  std::vector<int> axes;
  if (given.empty()) {
    if (c.flag("noop_with_empty_axes")) return axes;
    axes.resize(size_t(rank));
    std::iota(axes.begin(), axes.end(), 0);
    return axes;
  }
  for (int64_t axis : given) axes.push_back(int(axis < 0 ? axis + rank : axis));
  return axes;
}

bool contains(const std::vector<int>& axes, int axis) {
  for (int a : axes)
    if (a == axis) return true;
  return false;
}

void infer_reduce(Infer& i) {
  const int rank = i.rank(0);
  std::vector<int64_t> given;
  if (i.has(1)) {
    i.require(i.rank(1) <= 1, "input 'axes' has rank " + std::to_string(i.rank(1)) + ", a list is wanted");
    given = i.need_integers(1);
    i.axes(given, rank);  // rejects what is out of range or given twice
  }
  const std::vector<int> axes = reduced_axes(i, given, rank);
  Shape out;
  for (int a = 0; a < rank; ++a) {
    if (!contains(axes, a))
      out.push_back(i.dim(0, a));
    else if (i.flag("keepdims"))
      out.push_back(1);
  }
  i.output(0, i.dtype(0), out);
}

/// Where the outputs' groups begin, and where the members of a group lie from there; both in row-major order.
struct Groups {
  std::vector<int64_t> begin, member;
};

std::vector<int64_t> offsets(const Extents& shape, const std::vector<int64_t>& strides) {
  std::vector<int64_t> at;
  at.reserve(size_t(element_count(shape)));
  for (Index index(shape); index.more(); ++index) {
    int64_t offset = 0;
    for (size_t a = 0; a < shape.size(); ++a) offset += index.at()[a] * strides[a];
    at.push_back(offset);
  }
  return at;
}

Groups groups_of(const Extents& shape, const std::vector<int>& axes) {
  const std::vector<int64_t> strides = row_major_strides(shape);
  Extents kept, reduced;
  std::vector<int64_t> kept_strides, reduced_strides;
  for (int a = 0; a < int(shape.size()); ++a) {
    (contains(axes, a) ? reduced : kept).push_back(shape[size_t(a)]);
    (contains(axes, a) ? reduced_strides : kept_strides).push_back(strides[size_t(a)]);
  }
  return {offsets(kept, kept_strides), offsets(reduced, reduced_strides)};
}

template <Fold kFold>
double fold(const double* x, const std::vector<int64_t>& member) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if constexpr (kFold == Fold::kMax || kFold == Fold::kMin || kFold == Fold::kLogSumExp) {
    double best = kFold == Fold::kMin ? kInfinity : -kInfinity;
    for (int64_t k : member) {
      if (std::isnan(x[k])) return x[k];
      best = kFold == Fold::kMin ? std::min(best, x[k]) : std::max(best, x[k]);
    }
    if (kFold != Fold::kLogSumExp || std::isinf(best)) return best;
    double sum = 0;
    for (int64_t k : member) sum += std::exp(x[k] - best);
    return best + std::log(sum);
  }
  double sum = kFold == Fold::kProd ? 1 : 0;
  for (int64_t k : member) {
    if constexpr (kFold == Fold::kProd)
      sum *= x[k];
    else if constexpr (kFold == Fold::kL1)
      sum += std::fabs(x[k]);
    else if constexpr (kFold == Fold::kL2 || kFold == Fold::kSumSquare)
      sum += x[k] * x[k];
    else
      sum += x[k];
  }
  if constexpr (kFold == Fold::kMean) return sum / double(member.size());
  if constexpr (kFold == Fold::kL2) return std::sqrt(sum);
  if constexpr (kFold == Fold::kLogSum) return std::log(sum);
  return sum;
}

/// The largest (smallest) number of an integer type; for 64 bits unsigned by its bits.
int64_t limit_of(DType dtype, bool largest) {
  if (dtype == DType::kBool) return largest;
  const int bits = info(dtype).bits;
  if (!info(dtype).is_signed) return largest ? (bits == 64 ? -1 : (int64_t(1) << bits) - 1) : 0;
  const int64_t most = std::numeric_limits<int64_t>::max() >> (64 - bits);
  return largest ? most : -most - 1;
}

/// Integers: sums wrap, a mean and a root are truncated towards zero, the mean of nothing is 0.
template <Fold kFold>
int64_t fold(const int64_t* x, const std::vector<int64_t>& member, DType dtype) {
  if constexpr (kFold == Fold::kMax || kFold == Fold::kMin) {
    const bool by_bits = dtype == DType::kU64;
    int64_t best = limit_of(dtype, kFold == Fold::kMin);
    for (int64_t k : member) {
      const bool less = by_bits ? uint64_t(x[k]) < uint64_t(best) : x[k] < best;
      if (less == (kFold == Fold::kMin)) best = x[k];
    }
    return best;
  } else if constexpr (kFold == Fold::kL2 || kFold == Fold::kLogSum || kFold == Fold::kLogSumExp) {
    std::vector<double> values;
    for (int64_t k : member) values.push_back(dtype == DType::kU64 ? double(uint64_t(x[k])) : double(x[k]));
    std::vector<int64_t> all(member.size());
    std::iota(all.begin(), all.end(), 0);
    const double y = fold<kFold>(values.data(), all);
    return std::isfinite(y) ? int64_t(y) : limit_of(dtype, y > 0);
  } else {
    uint64_t sum = kFold == Fold::kProd ? 1 : 0;
    for (int64_t k : member) {
      const uint64_t v = uint64_t(x[k]);
      if constexpr (kFold == Fold::kProd)
        sum *= v;
      else if constexpr (kFold == Fold::kL1)
        sum += x[k] < 0 && dtype != DType::kU64 ? 0 - v : v;
      else if constexpr (kFold == Fold::kSumSquare)
        sum += v * v;
      else
        sum += v;
    }
    if constexpr (kFold == Fold::kMean) {
      if (member.empty()) return 0;
      return dtype == DType::kU64 ? int64_t(sum / member.size()) : int64_t(sum) / int64_t(member.size());
    }
    return int64_t(sum);
  }
}

template <Fold kFold>
void reduce_reference(Reference& c) {
  const RefArray& x = c.in[0];
  RefArray& y = c.out[0];
  const std::vector<int64_t> given = c.has(1) ? c.in[1].i : std::vector<int64_t>{};
  const Groups groups = groups_of(x.shape, reduced_axes(c, given, x.rank()));
  c.parallel_for(int64_t(groups.begin.size()), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = groups.begin[size_t(k)];
      if (x.is_float())
        y.f[size_t(k)] = fold<kFold>(x.f.data() + first, groups.member);
      else
        y.i[size_t(k)] = fold<kFold>(x.i.data() + first, groups.member, x.dtype);
    }
  });
}

/// Direct algorithm: operations an input element, operations an output element, and which of them are special.
template <int kEach, int kOnce, bool kEachSpecial = false, bool kOnceSpecial = false>
Cost reduce_cost(const Problem& p) {
  const int64_t in = p.input(0).elements(), out = p.output().elements();
  return {.flops = kEach * in + kOnce * out,
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes(),
          .special = (kEachSpecial ? in : 0) + (kOnceSpecial ? out : 0)};
}

/// A value of the output's shape, with the reduced axes as extents of 1.
V with_axes(Gradient& g, V v) {
  if (g.flag("keepdims")) return v;
  if (g.has(1)) return g.op("Unsqueeze", {v, g.input(1)});
  if (g.flag("noop_with_empty_axes")) return v;
  std::vector<int64_t> all(size_t(g.rank(g.input(0))));
  std::iota(all.begin(), all.end(), 0);
  return g.op("Unsqueeze", {v, g.integers_constant(all)});
}

V spread(Gradient& g, V v) { return g.op("Expand", {with_axes(g, v), g.op("Shape", {g.input(0)})}); }

V sum_kept(Gradient& g, V v) {
  Attributes attributes;
  attributes.set("keepdims", int64_t(1));
  attributes.set("noop_with_empty_axes", g.integer("noop_with_empty_axes"));
  return g.has(1) ? g.op("ReduceSum", {v, g.input(1)}, attributes) : g.op("ReduceSum", {v}, attributes);
}

/// How many elements each output was made of, as a scalar of x's dtype.
V count_of(Gradient& g) {
  V x = g.input(0);
  return g.cast(g.div(g.op("Size", {x}), g.op("Size", {g.output()})), g.dtype(x));
}

/// The gradient goes to the extreme element; elements that share the extreme share it evenly.
void extreme_gradient(Gradient& g) {
  V x = g.input(0);
  V is_best = g.cast(g.op("Equal", {x, with_axes(g, g.output())}), g.dtype(x));
  g.input_gradient(0, with_axes(g, g.gradient()) * is_best / sum_kept(g, is_best));
}

constexpr StaticList<InputSpec, 16> reduce_inputs(TypeSet types) { return {{"x", types}, {"axes", kInt64, "", true}}; }
constexpr StaticList<AttributeSpec, 24> kReduceAttributes = {{"keepdims", 1}, {"noop_with_empty_axes", 0}};
constexpr TypeSet kReduced =
    kFloats | type_bit(DType::kI32) | type_bit(DType::kI64) | type_bit(DType::kU32) | type_bit(DType::kU64);
constexpr TypeSet kCompared = kReduced | type_bit(DType::kI8) | type_bit(DType::kU8) | kBools;
constexpr StaticList<std::string_view, 24> kReduceSamples = {
    "x=f32[3,5,127] axes=i64{-1}",
    "x=f32[3,5,7] axes=i64{0,2} keepdims=0",
    "x=f32[7,13,5] axes=i64{1}",
    "x=f32[3,5,7]",
    "x=f32[3,5] noop_with_empty_axes=1",
    "x=f32[3,0,5] axes=i64{0}",
    "x=f32[2,17,3,5] axes=i64{-2,-1} keepdims=0",
    "x=f64[1,33]",
    "x=f16[5,65] axes=i64{1}",
    "x=bf16[65,3] axes=i64{0}",
    "x=i32[3,7] axes=i64{1}",
};

constexpr OpSchema reduction(std::string_view name, std::string_view doc, TypeSet types, StaticList<int, 16> versions) {
  OpSchema schema;
  schema.name = name;
  schema.family = "reduce";
  schema.kind = OpKind::kReduction;
  schema.doc = doc;
  schema.since = versions[versions.size() - 1];
  schema.versions = versions;
  schema.inputs = reduce_inputs(types);
  schema.outputs = {{"y"}};
  schema.attributes = kReduceAttributes;
  schema.infer = infer_reduce;
  schema.samples = kReduceSamples;
  schema.tolerance = Tolerance::reduction();
  return schema;
}

template <Fold kFold>
constexpr OpSchema reduction(std::string_view name, std::string_view doc, Cost (*cost)(const Problem&),
                             void (*gradient)(Gradient&), TypeSet types = kReduced,
                             StaticList<int, 16> versions = {1, 11, 13, 18}) {
  OpSchema schema = reduction(name, doc, types, versions);
  schema.cost = cost;
  schema.reference = reduce_reference<kFold>;
  schema.gradient = gradient;
  if (kFold == Fold::kMax || kFold == Fold::kMin) schema.tolerance = Tolerance::exact();
  return schema;
}

void infer_arg(Infer& i) {
  const int axis = i.axis(i.integer("axis"), i.rank(0));
  i.require(!i.dim(0, axis).is(0), "axis " + std::to_string(axis) + " has extent 0: there is no extreme element");
  Shape out = i.shape(0);
  if (i.flag("keepdims"))
    out[size_t(axis)] = 1;
  else
    out.erase(out.begin() + axis);
  i.output(0, DType::kI64, out);
}

/// Is a a better extreme than b? NaN is better than any number, the first NaN best of all.
template <bool kLargest>
bool better(const RefArray& x, int64_t a, int64_t b, bool or_equal) {
  if (x.is_float()) {
    const double p = x.f[size_t(a)], q = x.f[size_t(b)];
    if (std::isnan(q)) return false;
    if (std::isnan(p)) return true;
    return p == q ? or_equal : (p > q) == kLargest;
  }
  const int64_t p = x.i[size_t(a)], q = x.i[size_t(b)];
  if (p == q) return or_equal;
  return (x.dtype == DType::kU64 ? uint64_t(p) > uint64_t(q) : p > q) == kLargest;
}

template <bool kLargest>
void arg_reference(Reference& c) {
  const RefArray& x = c.in[0];
  const int axis = int(c.integer("axis") < 0 ? c.integer("axis") + x.rank() : c.integer("axis"));
  const bool last = c.flag("select_last_index");
  const Groups groups = groups_of(x.shape, {axis});
  c.parallel_for(int64_t(groups.begin.size()), [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = groups.begin[size_t(k)];
      int64_t best = 0;
      for (int64_t m = 1; m < int64_t(groups.member.size()); ++m)
        if (better<kLargest>(x, first + groups.member[size_t(m)], first + groups.member[size_t(best)], last)) best = m;
      c.out[0].i[size_t(k)] = best;
    }
  });
}

template <bool kLargest>
constexpr OpSchema arg_extreme(std::string_view name, std::string_view doc) {
  OpSchema schema;
  schema.name = name;
  schema.family = "reduce";
  schema.kind = OpKind::kReduction;
  schema.doc = doc;
  schema.since = 13;
  schema.versions = {1, 11, 12, 13};
  schema.inputs = {{"x", kNumbers}};
  schema.outputs = {{"y"}};
  schema.attributes = {{"axis", 0}, {"keepdims", 1}, {"select_last_index", 0}};
  schema.infer = infer_arg;
  schema.cost = [](const Problem& p) {
    return Cost{.flops = p.input(0).elements(), .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes()};
  };
  schema.reference = arg_reference<kLargest>;
  schema.no_gradient = "an index does not change with a small change of its input";
  schema.samples = {"x=f32[3,5,127] axis=-1",
                    "x=f32[3,5,7] axis=1 keepdims=0",
                    "x=i32[33,3] select_last_index=1",
                    "x=f32[0,5] axis=1",
                    "x=u8[7,13] axis=1 keepdims=0",
                    "x=f16[1,1,65] axis=2",
                    "x=f32[2,9,4] axis=-2 select_last_index=1 keepdims=0"};
  return schema;
}

}  // namespace

constinit const OpSchema kReduceSum = reduction<Fold::kSum>(
    "ReduceSum", "Sum of the elements along the axes (0 of none). Source: ONNX ReduceSum-13.", reduce_cost<1, 0>,
    [](Gradient& g) { g.input_gradient(0, spread(g, g.gradient())); }, kReduced, {1, 11, 13});

constinit const OpSchema kReduceMean = reduction<Fold::kMean>(
    "ReduceMean", "Mean of the elements along the axes (NaN of none). Source: ONNX ReduceMean-18.", reduce_cost<1, 1>,
    [](Gradient& g) { g.input_gradient(0, spread(g, g.gradient() / count_of(g))); });

constinit const OpSchema kReduceMax = reduction<Fold::kMax>(
    "ReduceMax",
    "Largest element along the axes; NaN if one is, the smallest value of the type of none. Source: ONNX ReduceMax-20.",
    reduce_cost<1, 0>, extreme_gradient, kCompared, {1, 11, 12, 13, 18, 20});

constinit const OpSchema kReduceMin = reduction<Fold::kMin>(
    "ReduceMin",
    "Smallest element along the axes; NaN if one is, the largest value of the type of none. Source: ONNX ReduceMin-20.",
    reduce_cost<1, 0>, extreme_gradient, kCompared, {1, 11, 12, 13, 18, 20});

constinit const OpSchema kReduceProd = [] {
  OpSchema schema = reduction<Fold::kProd>(
      "ReduceProd", "Product of the elements along the axes (1 of none). Source: ONNX ReduceProd-18.",
      reduce_cost<1, 0>, nullptr);
  schema.no_gradient = "the product of the other elements, where one of them is 0, needs a scan from both sides";
  return schema;
}();

constinit const OpSchema kReduceL1 = reduction<Fold::kL1>(
    "ReduceL1", "Sum of absolute values along the axes. Source: ONNX ReduceL1-18.", reduce_cost<2, 0>,
    [](Gradient& g) { g.input_gradient(0, with_axes(g, g.gradient()) * g.op("Sign", {g.input(0)})); });

constinit const OpSchema kReduceL2 = reduction<Fold::kL2>(
    "ReduceL2", "Root of the sum of squares along the axes. Source: ONNX ReduceL2-18.", reduce_cost<2, 1, false, true>,
    [](Gradient& g) {
      V x = g.input(0), norm = with_axes(g, g.output());
      V is_zero = g.op("Equal", {norm, g.constant(0, norm)});  // the gradient of |x| at 0 is taken as 0
      V safe = g.op("Where", {is_zero, g.constant(1, norm), norm});
      g.input_gradient(0, with_axes(g, g.gradient()) * x / safe);
    });

constinit const OpSchema kReduceLogSum =
    reduction<Fold::kLogSum>("ReduceLogSum", "Logarithm of the sum along the axes. Source: ONNX ReduceLogSum-18.",
                             reduce_cost<1, 1, false, true>, [](Gradient& g) {
                               V slope = with_axes(g, g.gradient()) / sum_kept(g, g.input(0));
                               g.input_gradient(0, g.op("Expand", {slope, g.op("Shape", {g.input(0)})}));
                             });

constinit const OpSchema kReduceLogSumExp = reduction<Fold::kLogSumExp>(
    "ReduceLogSumExp",
    "Logarithm of the sum of exponentials along the axes, around the maximum. Source: ONNX ReduceLogSumExp-18.",
    reduce_cost<4, 2, true, true>, [](Gradient& g) {
      g.input_gradient(0, with_axes(g, g.gradient()) * g.exp(g.input(0) - with_axes(g, g.output())));
    });

constinit const OpSchema kReduceSumSquare = reduction<Fold::kSumSquare>(
    "ReduceSumSquare", "Sum of squares along the axes. Source: ONNX ReduceSumSquare-18.", reduce_cost<2, 0>,
    [](Gradient& g) { g.input_gradient(0, with_axes(g, g.gradient()) * (g.input(0) + g.input(0))); });

constinit const OpSchema kArgMax = arg_extreme<true>(
    "ArgMax", "Index of the largest element along an axis, the first of equals (or the last). Source: ONNX ArgMax-13.");
constinit const OpSchema kArgMin = arg_extreme<false>(
    "ArgMin",
    "Index of the smallest element along an axis, the first of equals (or the last). Source: ONNX ArgMin-13.");

std::span<const OpSchema* const> reduce_ops() {
  static constexpr const OpSchema* kOps[] = {&kReduceSum,       &kReduceMean,      &kReduceMax, &kReduceMin,
                                             &kReduceProd,      &kReduceL1,        &kReduceL2,  &kReduceLogSum,
                                             &kReduceLogSumExp, &kReduceSumSquare, &kArgMax,    &kArgMin};
  return kOps;
}

}  // namespace ridgeline
