// Pools: what a window sees, reduced to one element; and the same over whole planes. Source: ONNX MaxPool-12,
// AveragePool-19, LpPool-18, GlobalAveragePool-1, GlobalMaxPool-1, GlobalLpPool-2.
#include <cmath>
#include <limits>
#include <numeric>

#include "core/saturate.h"
#include "ops/catalogue.h"
#include "ops/common.h"
#include "ops/windows.h"

namespace ridgeline {
namespace {

constexpr AttributeType kInts = AttributeType::kInts;

Shape infer_pool_shape(Infer& i) {
  i.require(i.rank(0) >= 3, "input 'x' is " + describe(i, 0) + ": [N, C, spatial...] is wanted");
  const size_t axes = size_t(i.rank(0)) - 2;
  const std::vector<int64_t> kernel = i.integers("kernel_shape");
  i.require(kernel.size() == axes, fmt::format("kernel_shape has {} entries, {} are wanted", kernel.size(), axes));
  for (int64_t k : kernel) i.require(k >= 1, fmt::format("kernel_shape has the entry {}", k));
  const Shape& x = i.shape(0);
  Shape out = infer_window(i, window_attributes(i, kernel, true), to_shape(kernel), Shape(x.begin() + 2, x.end()));
  out.insert(out.begin(), {x[0], x[1]});
  return out;
}

/// Calls body(output position, the flat positions of the plane that its window sees, and how many it would see in the
/// padded plane).
template <typename Body>
void for_each_window(const Window& w, const Body& body) {
  const std::vector<int64_t> strides = row_major_strides(w.in);
  std::vector<int64_t> seen;
  for (Index out(w.out); out.more(); ++out) {
    seen.clear();
    int64_t padded = 0;
    for (Index tap(w.kernel); tap.more(); ++tap) {
      int64_t place = 0;
      bool inside = true, in_padded = true;
      for (int a = 0; a < w.axes(); ++a) {
        const size_t s = size_t(a);
        const int64_t at = out[a] * w.stride[s] + tap[a] * w.dilation[s] - w.begin[s];
        inside = inside && at >= 0 && at < w.in[s];
        in_padded = in_padded && at < w.in[s] + w.end[s];
        place += at * strides[s];
      }
      if (inside) seen.push_back(place);
      padded += in_padded;
    }
    body(out.flat(), seen, padded);
  }
}

/// The windows of one plane, kept for all planes.
struct Windows {
  std::vector<std::vector<int64_t>> seen;
  std::vector<int64_t> padded;
  explicit Windows(const Window& w) {
    for_each_window(w, [&](int64_t, const std::vector<int64_t>& s, int64_t p) {
      seen.push_back(s);
      padded.push_back(p);
    });
  }
};

int64_t column_major(int64_t flat, const Extents& shape) {
  int64_t result = 0, stride = 1;
  std::vector<int64_t> at(shape.size());
  for (size_t a = shape.size(); a-- > 0; flat /= shape[a]) at[a] = flat % shape[a];
  for (size_t a = 0; a < shape.size(); stride *= shape[a++]) result += at[a] * stride;
  return result;
}

void max_pool_reference(Reference& c) {
  const RefArray& x = c.in[0];
  const Window w = pool_window(c, x.shape);
  const Windows windows(w);
  const int64_t in = element_count(w.in), out = element_count(w.out);
  const bool by_columns = c.flag("storage_order");
  const int64_t lowest = x.dtype == DType::kI8 ? -128 : 0;
  c.parallel_for(x.shape[0] * x.shape[1], [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      for (int64_t k = 0; k < out; ++k) {
        int64_t best = -1;
        for (int64_t place : windows.seen[size_t(k)]) {
          const double v = x.number(plane * in + place), top = best < 0 ? 0 : x.number(plane * in + best);
          if (best < 0 || v > top || (std::isnan(v) && !std::isnan(top))) best = place;
        }
        if (best >= 0)
          c.out[0].copy(plane * out + k, x, plane * in + best);
        else
          c.out[0].set(plane * out + k, x.is_float() ? -std::numeric_limits<double>::infinity() : double(lowest));
        if (c.wants(1))
          c.out[1].i[size_t(plane * out + k)] =
              plane * in + (by_columns && best >= 0 ? column_major(best, w.in) : best);
      }
    }
  });
}

template <typename Body>  // body(values of the window, how many count) -> y
void pool_planes(Reference& c, const Body& body) {
  const RefArray& x = c.in[0];
  const Window w = pool_window(c, x.shape);
  const Windows windows(w);
  const int64_t in = element_count(w.in), out = element_count(w.out);
  c.parallel_for(x.shape[0] * x.shape[1], [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane)
      for (int64_t k = 0; k < out; ++k)
        c.out[0].f[size_t(plane * out + k)] =
            body(x.f.data() + plane * in, windows.seen[size_t(k)], windows.padded[size_t(k)]);
  });
}

void average_pool_reference(Reference& c) {
  const bool with_padding = c.flag("count_include_pad");
  pool_planes(c, [&](const double* x, const std::vector<int64_t>& seen, int64_t padded) {
    double sum = 0;
    for (int64_t place : seen) sum += x[place];
    const int64_t count = with_padding ? padded : int64_t(seen.size());
    return count ? sum / double(count) : 0;
  });
}

double lp_norm(double sum, double p) { return p == 1 ? sum : p == 2 ? std::sqrt(sum) : std::pow(sum, 1 / p); }

void lp_pool_reference(Reference& c) {
  const double p = double(c.integer("p"));
  pool_planes(c, [&](const double* x, const std::vector<int64_t>& seen, int64_t) {
    double sum = 0;
    for (int64_t place : seen) sum += std::pow(std::fabs(x[place]), p);
    return lp_norm(sum, p);
  });
}

Cost pool_cost(const Problem& p) {
  const int64_t taps = element_count(p.integers("kernel_shape"));
  return {.flops = saturated_product({p.output().elements(), taps}),
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes()};
}

void infer_global(Infer& i) {
  i.require(i.rank(0) >= 2, "input 'x' is " + describe(i, 0) + ": [N, C, spatial...] is wanted");
  Shape out = i.shape(0);
  for (size_t a = 2; a < out.size(); ++a) out[a] = 1;
  i.output(0, i.dtype(0), out);
}

template <typename Body>  // body(plane, its elements) -> y
void global_planes(Reference& c, const Body& body) {
  const RefArray& x = c.in[0];
  const int64_t inner = span_of(x.shape, 1).inner;
  c.parallel_for(x.shape[0] * x.shape[1], [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane)
      c.out[0].f[size_t(plane)] = body(x.f.data() + plane * inner, inner);
  });
}

std::vector<int64_t> spatial_axes(Builder& b) {
  std::vector<int64_t> axes(size_t(b.rank(b.input(0)) - 2));
  std::iota(axes.begin(), axes.end(), -int64_t(axes.size()));
  return axes;
}

Cost global_cost(const Problem& p) {
  return {.flops = p.input(0).elements() + p.output().elements(),
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes()};
}

/// Each dy goes to the element that was the largest, the first of equals.
void max_pool_gradient(Gradient& g) {
  V x = g.input(0);
  Attributes a;
  for (std::string_view name : {"kernel_shape", "strides", "dilations", "pads"})
    if (const std::vector<int64_t> values = g.integers(name); !values.empty()) a.set(name, values);
  a.set("auto_pad", g.string("auto_pad"));
  a.set("ceil_mode", g.integer("ceil_mode"));
  V places = g.reshape(g.ops("MaxPool", {x}, 2, a)[1], {-1});
  V size = g.reshape(g.op("Size", {x}), {1});
  V zeros = g.op("Expand", {g.constant(0, x), size});
  Attributes scatter;
  scatter.set("axis", int64_t(0));
  scatter.set("reduction", std::string("add"));
  V flat = g.op("ScatterElements", {zeros, places, g.reshape(g.gradient(), {-1})}, scatter);
  g.input_gradient(0, g.op("Reshape", {flat, g.op("Shape", {x})}));
}

/// Each dy, over its count, goes back to all that its window saw: a transposed convolution of each plane with ones.
void average_pool_gradient(Gradient& g) {
  V x = g.input(0), dy = g.gradient();
  if (!known(g.shape(x)))
    fail(ErrorCode::kUnsupported, "the gradient of a pool is unsupported while extents are symbolic: bind them first");
  const Extents shape = extents(g.shape(x));
  const Window w = pool_window(g, shape);
  // One image a plane; pads grow by what ceil_mode adds, and the result is cut back to the plane.
  std::vector<int64_t> kernel = {1, 1}, in = {-1, 1}, out = {-1, 1}, starts, ends, axes, begin, rest;
  for (int a = 0; a < w.axes(); ++a) {
    const size_t s = size_t(a);
    kernel.push_back(w.kernel[s]);
    in.push_back(w.in[s]);
    out.push_back(w.out[s]);
    axes.push_back(a + 2);
    starts.push_back(w.begin[s]);
    ends.push_back(w.begin[s] + w.in[s]);
    rest.push_back(std::max<int64_t>(0, ends.back() - ((w.out[s] - 1) * w.stride[s] + w.reach(a))));
  }
  std::vector<double> counts;
  for_each_window(w, [&](int64_t, const std::vector<int64_t>& seen, int64_t padded) {
    counts.push_back(double(std::max<int64_t>(1, g.flag("count_include_pad") ? padded : int64_t(seen.size()))));
  });
  Tensor count = Tensor::zeros(g.dtype(x), w.out);
  for (size_t k = 0; k < counts.size(); ++k) store_f64(count.dtype(), count.data(), int64_t(k), counts[k]);
  V divisor{&g, g.graph().add_constant(g.graph().fresh_name("counts"), count)};
  V ones = g.op("Expand", {g.constant(1, x), g.integers_constant(kernel)});
  Attributes a;
  a.set("strides", w.stride);
  a.set("dilations", w.dilation);
  a.set("output_padding", rest);
  V full = g.op("ConvTranspose", {g.reshape(dy / divisor, out), ones}, a);
  V cut = g.op("Slice", {full, g.integers_constant(starts), g.integers_constant(ends), g.integers_constant(axes)});
  g.input_gradient(0, g.op("Reshape", {cut, g.op("Shape", {x})}));
}

}  // namespace

constinit const OpSchema kMaxPool = {
    .name = "MaxPool",
    .family = "pool",
    .kind = OpKind::kReduction,
    .doc =
        "Largest element of each window, and its place in the whole input; padding never wins, NaN does. Source: ONNX "
        "MaxPool-12.",
    .since = 12,
    .versions = {1, 8, 10, 11, 12, 22},
    .inputs = {{"x", kFloats | type_bit(DType::kI8) | type_bit(DType::kU8)}},
    .outputs = {{"y"}, {"indices", true}},
    .attributes = {{"kernel_shape", kInts, kRequired},
                   {"auto_pad", "NOTSET"},
                   {"ceil_mode", 0},
                   {"dilations", kInts},
                   {"pads", kInts},
                   {"storage_order", 0},
                   {"strides", kInts}},
    .infer =
        [](Infer& i) {
          const Shape out = infer_pool_shape(i);
          i.output(0, i.dtype(0), out);
          if (i.wants(1)) i.output(1, DType::kI64, out);
        },
    .cost = pool_cost,
    .reference = max_pool_reference,
    .gradient = max_pool_gradient,
    .samples = {"x=f32[2,3,9,7] kernel_shape=3,3 strides=2,2 pads=1,1,1,1",
                "x=f32[1,5,13,11] kernel_shape=2,2 strides=2,2",
                "x=f32[1,2,8,8] kernel_shape=3,3 strides=2,2 ceil_mode=1",
                "x=f32[1,2,9,9] kernel_shape=2,2 dilations=3,2",
                "x=f32[1,3,10,7] kernel_shape=3,2 auto_pad=SAME_UPPER strides=3,2",
                "x=f32[1,3,10,7] kernel_shape=3,2 auto_pad=SAME_LOWER strides=3,2",
                "x=f32[2,3,19] kernel_shape=5 strides=3 pads=2,1", "x=f32[1,2,5,6,7] kernel_shape=2,3,2",
                "x=f32[0,3,8,8] kernel_shape=3,3", "x=u8[1,2,7,7] kernel_shape=3,3 pads=1,1,1,1",
                "x=f16[1,5,9,9] kernel_shape=3,3 auto_pad=VALID",
                "x=f32[1,2,5,5] kernel_shape=2,2 strides=2,2 storage_order=1"},
};

constinit const OpSchema kAveragePool = {
    .name = "AveragePool",
    .family = "pool",
    .kind = OpKind::kReduction,
    .doc =
        "Mean of each window; padding counts only if count_include_pad says so, what lies beyond it never. Source: "
        "ONNX AveragePool-19.",
    .since = 19,
    .versions = {1, 7, 10, 11, 19, 22},
    .inputs = {{"x", kFloats}},
    .outputs = {{"y"}},
    .attributes = {{"kernel_shape", kInts, kRequired},
                   {"auto_pad", "NOTSET"},
                   {"ceil_mode", 0},
                   {"count_include_pad", 0},
                   {"dilations", kInts},
                   {"pads", kInts},
                   {"strides", kInts}},
    .infer = [](Infer& i) { i.output(0, i.dtype(0), infer_pool_shape(i)); },
    .cost =
        [](const Problem& p) {
          Cost cost = pool_cost(p);
          cost.flops += p.output().elements();
          return cost;
        },
    .reference = average_pool_reference,
    .gradient = average_pool_gradient,
    .samples = {"x=f32[2,3,9,7] kernel_shape=3,3 strides=2,2 pads=1,1,1,1",
                "x=f32[2,3,9,7] kernel_shape=3,3 strides=2,2 pads=1,1,1,1 count_include_pad=1",
                "x=f32[1,2,8,8] kernel_shape=3,3 strides=2,2 ceil_mode=1",
                "x=f32[1,2,8,8] kernel_shape=3,3 strides=2,2 ceil_mode=1 pads=1,1,1,1 count_include_pad=1",
                "x=f32[1,2,9,9] kernel_shape=2,2 dilations=3,2",
                "x=f32[1,3,10,7] kernel_shape=3,2 auto_pad=SAME_UPPER strides=3,2",
                "x=f32[1,3,10,7] kernel_shape=3,2 auto_pad=SAME_LOWER strides=3,2",
                "x=f32[2,3,19] kernel_shape=5 strides=3", "x=f32[1,2,5,6,7] kernel_shape=2,3,2",
                "x=f32[0,3,8,8] kernel_shape=3,3", "x=f16[1,5,9,9] kernel_shape=3,3 auto_pad=VALID",
                "x=f64[1,2,5,5] kernel_shape=2,2"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kLpPool = {
    .name = "LpPool",
    .family = "pool",
    .kind = OpKind::kReduction,
    .doc = "p-norm of each window. Source: ONNX LpPool-18.",
    .since = 18,
    .versions = {2, 11, 18, 22},
    .inputs = {{"x", kFloats}},
    .outputs = {{"y"}},
    .attributes = {{"kernel_shape", kInts, kRequired},
                   {"auto_pad", "NOTSET"},
                   {"ceil_mode", 0},
                   {"dilations", kInts},
                   {"p", 2},
                   {"pads", kInts},
                   {"strides", kInts}},
    .infer =
        [](Infer& i) {
          i.require(i.integer("p") >= 1, "p = " + std::to_string(i.integer("p")) + ": a positive number is wanted");
          i.output(0, i.dtype(0), infer_pool_shape(i));
        },
    .cost =
        [](const Problem& p) {
          Cost cost = pool_cost(p);
          cost.flops = 2 * cost.flops + p.output().elements();
          cost.special = p.output().elements();
          return cost;
        },
    .reference = lp_pool_reference,
    .no_gradient = "no model trains through it; it would be that of AveragePool over the powers",
    .samples = {"x=f32[2,3,9,7] kernel_shape=3,3 strides=2,2 pads=1,1,1,1", "x=f32[1,2,8] kernel_shape=3 p=1",
                "x=f32[1,2,8,8] kernel_shape=3,3 strides=2,2 ceil_mode=1 p=3", "x=f32[0,3,8,8] kernel_shape=3,3"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kGlobalAveragePool = {
    .name = "GlobalAveragePool",
    .family = "pool",
    .kind = OpKind::kReduction,
    .doc = "Mean of each plane of [N, C, spatial...]. Source: ONNX GlobalAveragePool-1.",
    .since = 1,
    .versions = {1, 22},
    .inputs = {{"x", kFloats}},
    .outputs = {{"y"}},
    .infer = infer_global,
    .cost = global_cost,
    .reference =
        [](Reference& c) {
          global_planes(c, [](const double* x, int64_t n) {
            double sum = 0;
            for (int64_t k = 0; k < n; ++k) sum += x[k];
            return sum / double(n);
          });
        },
    .decompose = {[](Builder& b) { b.result(b.reduce("ReduceMean", b.input(0), spatial_axes(b))); }},
    .samples = {"x=f32[2,5,7,7]", "x=f32[1,33,1,1]", "x=f32[3,4,19]", "x=f32[0,3,4,4]", "x=f16[1,7,9,5]",
                "x=bf16[1,2,3,4,5]", "x=f64[1,3,5,5]"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kGlobalMaxPool = {
    .name = "GlobalMaxPool",
    .family = "pool",
    .kind = OpKind::kReduction,
    .doc = "Largest element of each plane of [N, C, spatial...]; NaN if one is. Source: ONNX GlobalMaxPool-1.",
    .since = 1,
    .versions = {1, 22},
    .inputs = {{"x", kFloats}},
    .outputs = {{"y"}},
    .infer = infer_global,
    .cost = global_cost,
    .reference =
        [](Reference& c) {
          global_planes(c, [](const double* x, int64_t n) {
            double best = -std::numeric_limits<double>::infinity();
            for (int64_t k = 0; k < n; ++k)
              if (x[k] > best || std::isnan(x[k])) best = x[k];
            return best;
          });
        },
    .decompose = {[](Builder& b) { b.result(b.reduce("ReduceMax", b.input(0), spatial_axes(b))); }},
    .samples = {"x=f32[2,5,7,7]", "x=f32[3,4,19]", "x=f32[0,3,4,4]", "x=f16[1,7,9,5]"},
};

constinit const OpSchema kGlobalLpPool = {
    .name = "GlobalLpPool",
    .family = "pool",
    .kind = OpKind::kReduction,
    .doc = "p-norm of each plane of [N, C, spatial...]. Source: ONNX GlobalLpPool-2.",
    .since = 2,
    .versions = {2, 22},
    .inputs = {{"x", kFloats}},
    .outputs = {{"y"}},
    .attributes = {{"p", 2}},
    .infer = infer_global,
    .cost =
        [](const Problem& p) {
          Cost cost = global_cost(p);
          cost.flops += p.input(0).elements();
          cost.special = p.output().elements();
          return cost;
        },
    .reference =
        [](Reference& c) {
          const double p = double(c.integer("p"));
          global_planes(c, [&](const double* x, int64_t n) {
            double sum = 0;
            for (int64_t k = 0; k < n; ++k) sum += std::pow(std::fabs(x[k]), p);
            return lp_norm(sum, p);
          });
        },
    .no_gradient = "no model trains through it; ReduceL2 has one",
    .samples = {"x=f32[2,5,7,7]", "x=f32[3,4,19] p=1", "x=f32[0,3,4,4] p=3", "x=f16[1,7,9,5]"},
    .tolerance = Tolerance::reduction(),
};

std::span<const OpSchema* const> pool_ops() {
  static constexpr const OpSchema* kOps[] = {&kMaxPool,           &kAveragePool,   &kLpPool,
                                             &kGlobalAveragePool, &kGlobalMaxPool, &kGlobalLpPool};
  return kOps;
}

}  // namespace ridgeline
