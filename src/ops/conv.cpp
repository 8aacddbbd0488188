// Convolutions and transposed convolutions over any number of spatial axes. Source: ONNX Conv-11, ConvTranspose-11,
// ConvInteger-10, QLinearConv-10.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/saturate.h"
#include "ops/catalogue.h"
#include "ops/common.h"
#include "ops/matmul.h"
#include "ops/windows.h"

namespace ridgeline {
namespace {

Shape spatial(const Shape& shape) { return {shape.begin() + 2, shape.end()}; }

/// Kernel extents for the attributes' lengths; a symbolic one counts as 1 there and is taken from the weight's shape
/// instead.
std::vector<int64_t> numbers_of(const Shape& kernel) {
  std::vector<int64_t> numbers;
  for (const Dim& d : kernel) numbers.push_back(d.known() ? d.value() : 1);
  return numbers;
}

/// Ranks, group, channels and kernel_shape. `x`, `w`: which inputs these are. `channel_axis`: of w, whose extent times
/// group is C.
void check_conv(Infer& i, int x, int w, bool transposed) {
  i.require(i.rank(x) >= 3, [&] {
    return fmt::format("input '{}' is {}: [N, C, spatial...] is wanted", i.op().inputs[x].name, describe(i, x));
  });
  i.require(i.rank(w) == i.rank(x), [&] {
    return fmt::format("the weight is {} for an input {}: equal ranks are wanted", describe(i, w), describe(i, x));
  });
  const int64_t group = i.integer("group");
  i.require(group >= 1, [&] { return fmt::format("group = {}: a positive number is wanted", group); });
  const Dim &channels = i.dim(x, 1), &rows = i.dim(w, 0);
  if (transposed) {
    i.require(!channels.known() || !rows.known() || channels == rows, [&] {
      return fmt::format("the input {} has {} channels, the weight {} is for {}", describe(i, x), channels.text(),
                         describe(i, w), rows.text());
    });
    i.require(!channels.known() || channels.value() % group == 0,
              [&] { return fmt::format("{} channels do not divide into {} groups", channels.text(), group); });
  } else {
    const Dim want = i.dim(w, 1) * Dim(group);
    i.require(!channels.known() || !want.known() || channels == want, [&] {
      return fmt::format("the input {} has {} channels, the weight {} with group = {} is for {}", describe(i, x),
                         channels.text(), describe(i, w), group, want.text());
    });
    i.require(!rows.known() || rows.value() % group == 0,
              [&] { return fmt::format("{} output channels do not divide into {} groups", rows.text(), group); });
  }
  const std::vector<int64_t> given = i.integers("kernel_shape");
  for (size_t a = 0; a < given.size(); ++a) {
    const bool fits =
        given.size() == size_t(i.rank(w)) - 2 && (!i.dim(w, int(a) + 2).known() || i.dim(w, int(a) + 2).is(given[a]));
    i.require(fits, [&] {
      return fmt::format("kernel_shape = {} differs from the weight {}", text(std::span<const int64_t>(given)),
                         describe(i, w));
    });
  }
  for (int a = 2; a < i.rank(w); ++a)
    i.require(!i.dim(w, a).is(0), [&] { return fmt::format("the weight {} has an empty kernel", describe(i, w)); });
}

void check_bias(Infer& i, int bias, const Dim& channels) {
  if (bias < 0 || !i.has(bias)) return;
  const bool fits = i.rank(bias) == 1 && (!i.dim(bias, 0).known() || !channels.known() || i.dim(bias, 0) == channels);
  i.require(fits, fmt::format("input '{}' is {}: one number for each of the {} output channels is wanted",
                              i.op().inputs[bias].name, describe(i, bias), channels.text()));
}

/// A scale or zero point: one number, or one for each output channel.
void check_per_channel(Infer& i, int input, const Dim& channels) {
  if (!i.has(input)) return;
  const Shape& s = i.shape(input);
  const bool one = s.empty() || (s.size() == 1 && s[0].is(1));
  const bool fits = one || (s.size() == 1 && (!s[0].known() || !channels.known() || s[0] == channels));
  i.require(fits, fmt::format("input '{}' is {}: one number, or one for each of the {} output channels, is wanted",
                              i.op().inputs[input].name, describe(i, input), channels.text()));
}

void infer_conv(Infer& i, int x, int w, int bias, DType dtype) {
  check_conv(i, x, w, false);
  check_bias(i, bias, i.dim(w, 0));
  const Shape kernel = spatial(i.shape(w));
  Shape out = infer_window(i, window_attributes(i, numbers_of(kernel), false), kernel, spatial(i.shape(x)));
  out.insert(out.begin(), {i.dim(x, 0), i.dim(w, 0)});
  i.output(0, dtype, out);
}

// ---- the direct algorithm in double

struct Padded {
  Extents shape;  // spatial
  std::vector<double> data;
};

/// The image with its padding written out, less `zero`.
Padded padded(const RefArray& x, const Window& w, double zero) {
  Padded p;
  for (int a = 0; a < w.axes(); ++a)
    p.shape.push_back(w.in[size_t(a)] + w.begin[size_t(a)] + std::max<int64_t>(0, w.end[size_t(a)]));
  const int64_t planes = x.shape[0] * x.shape[1], from = element_count(w.in), to = element_count(p.shape);
  p.data.assign(size_t(planes * to), 0.0);
  const std::vector<int64_t> strides = row_major_strides(p.shape);
  for (Index at(w.in); at.more(); ++at) {
    int64_t place = 0;
    for (int a = 0; a < w.axes(); ++a) place += (at[a] + w.begin[size_t(a)]) * strides[size_t(a)];
    for (int64_t plane = 0; plane < planes; ++plane)
      p.data[size_t(plane * to + place)] = x.number(plane * from + at.flat()) - zero;
  }
  return p;
}

/// Offsets in a padded image of all positions of `extents`, `step` apart an axis.
std::vector<int64_t> offsets(const Extents& extents, const Extents& step, const Extents& image) {
  const std::vector<int64_t> strides = row_major_strides(image);
  std::vector<int64_t> result;
  for (Index at(extents); at.more(); ++at) {
    int64_t offset = 0;
    for (size_t a = 0; a < image.size(); ++a) offset += at[int(a)] * step[a] * strides[a];
    result.push_back(offset);
  }
  return result;
}

/// out[N, M, out...]: each position gathers its patch, and multiplies it by the weights of its group as [C/g * taps,
/// M/g].
std::vector<double> convolve(const Reference& c, const RefArray& x, const RefArray& w, double x_zero,
                             const std::vector<double>& w_zeros) {
  const Window window = conv_window(c, x.shape, w.shape);
  const int64_t group = c.integer("group"), m = w.shape[0] / group, channels = w.shape[1], taps = window.taps(),
                depth = channels * taps;
  const int64_t positions = element_count(window.out);
  const Padded image = padded(x, window, x_zero);
  const int64_t plane = element_count(image.shape);
  const std::vector<int64_t> tap = offsets(window.kernel, window.dilation, image.shape),
                             position = offsets(window.out, window.stride, image.shape);
  std::vector<double> out(size_t(x.shape[0] * w.shape[0] * positions));
  for (int64_t g = 0; g < group; ++g) {
    std::vector<double> weights(size_t(depth * m));
    for (int64_t row = 0; row < m; ++row)
      for (int64_t k = 0; k < depth; ++k)
        weights[size_t(k * m + row)] =
            w.number((g * m + row) * depth + k) - (w_zeros.empty() ? 0 : w_zeros[size_t(g * m + row) % w_zeros.size()]);
    c.parallel_for(x.shape[0] * positions, [&](int64_t begin, int64_t end) {
      std::vector<double> patch(static_cast<size_t>(depth)), sums(static_cast<size_t>(m));
      for (int64_t k = begin; k < end; ++k) {
        const int64_t n = k / positions, p = k % positions;
        const double* from = image.data.data() + (n * group + g) * channels * plane + position[size_t(p)];
        for (int64_t channel = 0; channel < channels; ++channel)
          for (int64_t t = 0; t < taps; ++t) patch[size_t(channel * taps + t)] = from[channel * plane + tap[size_t(t)]];
        multiply_row(RowOfA<double>{patch.data(), 1}, weights.data(), sums.data(), depth, m);
        for (int64_t row = 0; row < m; ++row)
          out[size_t(((n * group + g) * m + row) * positions + p)] = sums[size_t(row)];
      }
    });
  }
  return out;
}

void conv_reference(Reference& c) {
  c.out[0].f = convolve(c, c.in[0], c.in[1], 0, {});
  if (!c.has(2)) return;
  const AxisSpan s = span_of(c.out[0].shape, 1);
  for (size_t k = 0; k < c.out[0].f.size(); ++k) c.out[0].f[k] += c.in[2].f[k / size_t(s.inner) % size_t(s.extent)];
}

int64_t conv_flops(const Problem& p, int w) {
  return saturated_product({2, p.output().elements(), p.input(w).shape()[1],
                            element_count(Extents(p.input(w).shape().begin() + 2, p.input(w).shape().end()))});
}

// ---- transposed: each input element adds its weighted kernel to the result

void conv_transpose_reference(Reference& c) {
  const RefArray &x = c.in[0], &w = c.in[1];
  RefArray& y = c.out[0];
  const Window window = transposed_window(c, x.shape, w.shape);
  const int64_t group = c.integer("group"), channels = x.shape[1] / group, m = w.shape[1], taps = window.taps();
  const int64_t in = element_count(window.in), out = element_count(window.out);
  // Where a tap of an input position lands: -1 if it is cut off.
  std::vector<int64_t> lands;
  const std::vector<int64_t> strides = row_major_strides(window.out);
  for (Index tap(window.kernel); tap.more(); ++tap) {
    for (Index at(window.in); at.more(); ++at) {
      int64_t place = 0;
      for (int a = 0; a < window.axes() && place >= 0; ++a) {
        const size_t s = size_t(a);
        const int64_t o = at[a] * window.stride[s] + tap[a] * window.dilation[s] - window.begin[s];
        place = o < 0 || o >= window.out[s] ? -1 : place + o * strides[s];
      }
      lands.push_back(place);
    }
  }
  c.parallel_for(x.shape[0] * group * m, [&](int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t row = k % m, g = k / m % group, n = k / m / group;
      double* to = y.f.data() + k * out;
      if (c.has(2)) std::fill(to, to + out, c.in[2].f[size_t(g * m + row)]);
      for (int64_t channel = g * channels; channel < (g + 1) * channels; ++channel) {
        const double* from = x.f.data() + (n * x.shape[1] + channel) * in;
        for (int64_t t = 0; t < taps; ++t) {
          const double weight = w.f[size_t((channel * m + row) * taps + t)];
          const int64_t* land = lands.data() + t * in;
          for (int64_t p = 0; p < in; ++p)
            if (land[p] >= 0) to[land[p]] += from[p] * weight;
        }
      }
    }
  });
}

// ---- gradients

Extents known_extents(Builder& b, V v) {
  if (!known(b.shape(v)))
    fail(ErrorCode::kUnsupported,
         "the gradient of a convolution is unsupported while extents are symbolic: bind them first");
  return extents(b.shape(v));
}

Attributes window_as_attributes(const Window& w, int64_t group) {
  Attributes a;
  std::vector<int64_t> pads = w.begin;
  pads.insert(pads.end(), w.end.begin(), w.end.end());
  a.set("strides", w.stride);
  a.set("dilations", w.dilation);
  a.set("pads", pads);
  a.set("group", group);
  return a;
}

/// d(w) of y = conv(x, w): a convolution of x with dy as its kernel, strides and dilations exchanged, batch and
/// channels exchanged.
V weight_gradient(Gradient& g, V x, V dy, const Window& w, int64_t group) {
  const Extents xs = known_extents(g, x), dys = known_extents(g, dy);
  const int64_t batch = xs[0], channels = xs[1] / group;
  std::vector<int64_t> split = {batch, group, channels}, joined = {channels, group * batch}, perm = {2, 1, 0},
                       swap = {1, 0};
  for (size_t a = 0; a < w.in.size(); ++a) {
    split.push_back(w.in[a]);
    joined.push_back(w.in[a]);
    perm.push_back(int64_t(a) + 3);
    swap.push_back(int64_t(a) + 2);
  }
  Window turned = w;
  std::swap(turned.stride, turned.dilation);
  V images = g.reshape(g.transpose(g.reshape(x, split), perm), joined);
  V dw = g.op("Conv", {images, g.transpose(dy, swap)},
              window_as_attributes(turned, group));  // [C/g, M, taps and perhaps a rest]
  std::vector<int64_t> starts(w.in.size(), 0), axes(w.in.size());
  std::iota(axes.begin(), axes.end(), 2);
  dw = g.op("Slice", {dw, g.integers_constant(starts), g.integers_constant(w.kernel), g.integers_constant(axes)});
  return g.transpose(dw, swap);
}

std::vector<int64_t> all_but_channels(int rank) {
  std::vector<int64_t> axes = {0};
  for (int a = 2; a < rank; ++a) axes.push_back(a);
  return axes;
}

void conv_gradient(Gradient& g) {
  V x = g.input(0), w = g.input(1), dy = g.gradient();
  const Window window = conv_window(g, known_extents(g, x), known_extents(g, w));
  const int64_t group = g.integer("group");
  Attributes a = window_as_attributes(window, group);
  std::vector<int64_t> rest;  // what the last window does not reach
  for (int axis = 0; axis < window.axes(); ++axis) {
    const size_t s = size_t(axis);
    rest.push_back(window.in[s] + window.begin[s] + window.end[s] -
                   ((window.out[s] - 1) * window.stride[s] + window.reach(axis)));
  }
  a.set("output_padding", rest);
  g.input_gradient(0, g.op("ConvTranspose", {dy, w}, a));
  g.input_gradient(1, weight_gradient(g, x, dy, window, group));
  if (g.has(2)) g.input_gradient(2, g.reduce("ReduceSum", dy, all_but_channels(g.rank(dy)), false));
}

void conv_transpose_gradient(Gradient& g) {
  V x = g.input(0), w = g.input(1), dy = g.gradient();
  Window window = transposed_window(g, known_extents(g, x), known_extents(g, w));
  const int64_t group = g.integer("group");
  std::swap(window.in, window.out);                   // seen from dy, which is the large side
  for (int axis = 0; axis < window.axes(); ++axis) {  // pads so that exactly the input's extent comes out
    const size_t s = size_t(axis);
    window.end[s] = (window.out[s] - 1) * window.stride[s] + window.reach(axis) - window.in[s] - window.begin[s];
    if (window.end[s] < 0) window.end[s] = 0;
  }
  Attributes a = window_as_attributes(window, group);
  V dx = g.op("Conv", {dy, w}, a);
  g.input_gradient(0, dx);
  g.input_gradient(1, weight_gradient(g, dy, x, window, group));
  if (g.has(2)) g.input_gradient(2, g.reduce("ReduceSum", dy, all_but_channels(g.rank(dy)), false));
}

constexpr AttributeType kInts = AttributeType::kInts;
constexpr StaticList<AttributeSpec, 24> kConvAttributes = {{"auto_pad", "NOTSET"}, {"dilations", kInts},
                                                           {"group", 1},           {"kernel_shape", kInts},
                                                           {"pads", kInts},        {"strides", kInts}};
constexpr TypeSet kBytes = type_bit(DType::kI8) | type_bit(DType::kU8);

double scalar_or_zero(const Reference& c, int input) { return c.has(input) ? c.in[size_t(input)].number(0) : 0; }
std::vector<double> numbers(const Reference& c, int input) {
  std::vector<double> all;
  if (c.has(input))
    for (int64_t k = 0; k < c.in[size_t(input)].elements(); ++k) all.push_back(c.in[size_t(input)].number(k));
  return all;
}

}  // namespace

constinit const OpSchema kConv = {
    .name = "Conv",
    .family = "conv",
    .kind = OpKind::kContraction,
    .doc =
        "Convolution (cross-correlation) of [N, C, spatial...] with [M, C/group, kernel...], plus a bias a channel. "
        "Source: ONNX Conv-11.",
    .since = 11,
    .versions = {1, 11, 22},
    .inputs = {{"x", kFloats}, {"w", kFloats, "x"}, {"b", kFloats, "x", true}},
    .outputs = {{"y"}},
    .attributes = kConvAttributes,
    .infer = [](Infer& i) { infer_conv(i, 0, 1, 2, i.dtype(0)); },
    .cost =
        [](const Problem& p) {
          return Cost{.flops = conv_flops(p, 1) + (p.has(2) ? p.output().elements() : 0),
                      .read_bytes = p.read_bytes(),
                      .write_bytes = p.write_bytes()};
        },
    .reference = conv_reference,
    .gradient = conv_gradient,
    .samples = {"x=f32[2,3,9,7] w=f32[5,3,3,3] b=f32[5] pads=1,1,1,1",
                "x=f32[1,4,11,11] w=f32[6,4,3,3] strides=2,2 pads=0,1,2,1", "x=f32[1,8,7,7] w=f32[16,8,1,1] b=f32[16]",
                "x=f32[2,6,10,9] w=f32[6,1,3,3] group=6 pads=1,1,1,1 strides=2,1",
                "x=f32[1,6,8,8] w=f32[4,3,3,3] b=f32[4] group=2 dilations=2,2 pads=2,2,2,2",
                "x=f32[1,3,17,13] w=f32[8,3,7,7] auto_pad=SAME_UPPER strides=2,2",
                "x=f32[1,3,8,9] w=f32[2,3,4,2] auto_pad=SAME_LOWER strides=3,2",
                "x=f32[1,2,6,6] w=f32[3,2,3,3] auto_pad=VALID b=f32[3]",
                "x=f32[2,3,19] w=f32[4,3,5] b=f32[4] pads=2,1 strides=3",
                "x=f32[1,2,5,6,7] w=f32[3,2,2,3,3] pads=0,1,1,1,1,1", "x=f32[0,3,8,8] w=f32[4,3,3,3]",
                "x=f64[1,3,6,5] w=f64[2,3,3,2] b=f64[2] strides=2,2",
                "x=f16[1,5,9,9] w=f16[7,5,3,3] b=f16[7] pads=1,1,1,1", "x=bf16[1,5,9,9] w=bf16[7,5,3,3] pads=1,1,1,1",
                "x=f32[1,33,14,14] w=f32[17,33,3,3] pads=1,1,1,1"},
    .tolerance = Tolerance::contraction(),
};

constinit const OpSchema kConvTranspose = {
    .name = "ConvTranspose",
    .family = "conv",
    .kind = OpKind::kContraction,
    .doc =
        "Transposed convolution: each element of [N, C, spatial...] adds its multiple of a kernel of [C, M/group, "
        "kernel...]. Source: ONNX ConvTranspose-11.",
    .since = 11,
    .versions = {1, 11, 22},
    .inputs = {{"x", kFloats}, {"w", kFloats, "x"}, {"b", kFloats, "x", true}},
    .outputs = {{"y"}},
    .attributes = {{"auto_pad", "NOTSET"},
                   {"dilations", kInts},
                   {"group", 1},
                   {"kernel_shape", kInts},
                   {"output_padding", kInts},
                   {"output_shape", kInts},
                   {"pads", kInts},
                   {"strides", kInts}},
    .infer =
        [](Infer& i) {
          check_conv(i, 0, 1, true);
          const Dim channels = i.dim(1, 1) * Dim(i.integer("group"));
          check_bias(i, 2, channels);
          const Shape kernel = spatial(i.shape(1));
          Shape out =
              infer_transposed_window(i, transposed_attributes(i, numbers_of(kernel)), kernel, spatial(i.shape(0)));
          out.insert(out.begin(), {i.dim(0, 0), channels});
          i.output(0, i.dtype(0), out);
        },
    .cost =
        [](const Problem& p) {
          const int64_t per_element =
              p.input(1).shape()[1] * element_count(Extents(p.input(1).shape().begin() + 2, p.input(1).shape().end()));
          return Cost{.flops = saturated_product({2, p.input(0).elements(), per_element}) +
                               (p.has(2) ? p.output().elements() : 0),
                      .read_bytes = p.read_bytes(),
                      .write_bytes = p.write_bytes()};
        },
    .reference = conv_transpose_reference,
    .gradient = conv_transpose_gradient,
    .samples = {"x=f32[1,3,5,4] w=f32[3,2,3,3] b=f32[2]", "x=f32[2,4,5,5] w=f32[4,3,2,2] b=f32[3] strides=2,2",
                "x=f32[1,4,4,5] w=f32[4,2,3,3] group=2 strides=2,2 pads=1,1,1,1 output_padding=1,1",
                "x=f32[1,2,3,3] w=f32[2,2,3,3] dilations=2,2",
                "x=f32[1,1,3,3] w=f32[1,2,3,3] strides=3,2 output_shape=10,8",
                "x=f32[1,2,4,5] w=f32[2,3,3,3] auto_pad=SAME_UPPER strides=2,2",
                "x=f32[1,2,7] w=f32[2,3,4] strides=3 pads=1,2", "x=f32[1,2,3,2,3] w=f32[2,2,2,3,2]",
                "x=f32[0,3,4,4] w=f32[3,2,2,2]", "x=f64[1,2,3,4] w=f64[2,1,3,2] strides=2,1",
                "x=f16[1,3,5,5] w=f16[3,4,3,3] b=f16[4]"},
    .tolerance = Tolerance::contraction(),
};

constinit const OpSchema kConvInteger = {
    .name = "ConvInteger",
    .family = "conv",
    .kind = OpKind::kContraction,
    .doc = "Convolution of x - x_zero_point with w - w_zero_point in 32-bit integers. Source: ONNX ConvInteger-10.",
    .since = 10,
    .versions = {10},
    .inputs = {{"x", kBytes}, {"w", kBytes}, {"x_zero_point", kBytes, "x", true}, {"w_zero_point", kBytes, "w", true}},
    .outputs = {{"y"}},
    .attributes = kConvAttributes,
    .infer =
        [](Infer& i) {
          infer_conv(i, 0, 1, -1, DType::kI32);
          check_per_channel(i, 3, i.dim(1, 0));
        },
    .cost =
        [](const Problem& p) {
          return Cost{.flops = conv_flops(p, 1), .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes()};
        },
    .reference =
        [](Reference& c) {
          const std::vector<double> y = convolve(c, c.in[0], c.in[1], scalar_or_zero(c, 2), numbers(c, 3));
          for (size_t k = 0; k < y.size(); ++k) c.out[0].i[k] = int64_t(y[k]);
        },
    .no_gradient = kNoGradientDiscrete,
    .samples = {"x=u8[1,3,5,4] w=u8[2,3,3,3] x_zero_point=u8[] w_zero_point=u8[]",
                "x=u8[2,4,7,7] w=i8[6,2,3,3] w_zero_point=i8[6] x_zero_point=u8[] group=2 pads=1,1,1,1",
                "x=u8[1,6,9,8] w=i8[6,1,3,3] x_zero_point=u8[] group=6 pads=1,1,1,1 strides=2,1",
                "x=u8[0,3,4,4] w=i8[2,3,2,2]"},
};

constinit const OpSchema kQLinearConv = {
    .name = "QLinearConv",
    .family = "conv",
    .kind = OpKind::kContraction,
    .doc =
        "Convolution of quantized operands, quantized: round((conv + b) * (x_scale * w_scale / y_scale)) + "
        "y_zero_point. Source: ONNX QLinearConv-10.",
    .since = 10,
    .versions = {10},
    .inputs = {{"x", kBytes},
               {"x_scale", kFloats},
               {"x_zero_point", kBytes, "x"},
               {"w", kBytes},
               {"w_scale", kFloats},
               {"w_zero_point", kBytes, "w"},
               {"y_scale", kFloats},
               {"y_zero_point", kBytes},
               {"b", type_bit(DType::kI32), "", true}},
    .outputs = {{"y"}},
    .attributes = kConvAttributes,
    .infer =
        [](Infer& i) {
          infer_conv(i, 0, 3, 8, i.dtype(7));
          for (int input : {4, 5}) check_per_channel(i, input, i.dim(3, 0));
        },
    .cost =
        [](const Problem& p) {
          return Cost{.flops = conv_flops(p, 3), .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes()};
        },
    .reference =
        [](Reference& c) {
          const std::vector<double> sums = convolve(c, c.in[0], c.in[3], scalar_or_zero(c, 2), numbers(c, 5));
          const AxisSpan s = span_of(c.out[0].shape, 1);
          const RefArray& scale = c.in[4];
          const double least = c.out[0].dtype == DType::kI8 ? -128 : 0, most = c.out[0].dtype == DType::kI8 ? 127 : 255;
          for (size_t k = 0; k < sums.size(); ++k) {
            const size_t channel = k / size_t(s.inner) % size_t(s.extent);
            const double sum = sums[k] + (c.has(8) ? c.in[8].number(int64_t(channel)) : 0);
            const double factor = c.in[1].f[0] * scale.f[scale.elements() == 1 ? 0 : channel] / c.in[6].f[0];
            c.out[0].i[k] = int64_t(std::clamp(std::nearbyint(sum * factor) + c.in[7].number(0), least, most));
          }
        },
    .no_gradient = kNoGradientDiscrete,
    .samples = {"x=u8[1,3,5,4] x_scale=f32[] x_zero_point=u8[] w=u8[2,3,3,3] w_scale=f32[] w_zero_point=u8[] "
                "y_scale=f32[] y_zero_point=u8[]",
                "x=u8[2,4,7,7] x_scale=f32[] x_zero_point=u8[] w=i8[6,2,3,3] w_scale=f32[6] w_zero_point=i8[6] "
                "y_scale=f32[] y_zero_point=u8[] b=i32[6] group=2 pads=1,1,1,1",
                "x=u8[0,3,4,4] x_scale=f32[] x_zero_point=u8[] w=i8[2,3,2,2] w_scale=f32[] w_zero_point=i8[] "
                "y_scale=f32[] y_zero_point=u8[]"},
    .tolerance = Tolerance::elementwise(1),  // a sum that lies between two integers may go either way
};

std::span<const OpSchema* const> conv_ops() {
  static constexpr const OpSchema* kOps[] = {&kConv, &kConvTranspose, &kConvInteger, &kQLinearConv};
  return kOps;
}

}  // namespace ridgeline
