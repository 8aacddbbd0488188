// Layer and RMS normalization, alone and after the addition of a residual. Source: ONNX LayerNormalization-17,
// RMSNormalization-23; Ba, Kiros and Hinton, 2016; Zhang and Sennrich, 2019; com.microsoft SkipLayerNormalization-1.
// Statistics are taken in at least f32 (`stash_type`), whatever the type of x; f64 stays f64.
#include <cmath>
#include <numeric>

#include "ops/catalogue.h"
#include "ops/contributed.h"

namespace ridgeline {
namespace {
constexpr int kOnnxF32 = 1;  // TensorProto.DataType

DType stash_type(int64_t onnx_id, DType x) {
  const DType stash = dtype_of_onnx(int(onnx_id));
  return info(x).bits > info(stash).bits ? x : stash;
}

void check_stash_type(Infer& i) {
  const DType stash = dtype_of_onnx(int(i.integer("stash_type")));
  i.require(stash == DType::kF32 || stash == DType::kBF16 || stash == DType::kF64,
            "stash_type " + std::to_string(i.integer("stash_type")) +
                " is unsupported: allowed are 1 (f32), 11 (f64) and 16 (bf16)");
}

int normalized_axis(const Infer& i) {
  return i.op().attributes[0].name == "axis" ? i.axis(i.integer("axis"), i.rank(0)) : i.rank(0) - 1;
}

/// Scale and bias vary over the normalized axes only: [rows, 1] is another operator.
void check_parameter(Infer& i, int input, int axis) {
  const int rank = i.rank(0), shift = rank - i.rank(input);
  i.require(shift >= 0, fmt::format("input '{}' has rank {}, more than the {} of x", i.op().inputs[input].name,
                                    i.rank(input), rank));
  for (int a = 0; a < i.rank(input); ++a) {
    const Dim& extent = i.dim(input, a);
    if (extent.is(1)) continue;
    const Dim& want = i.dim(0, a + shift);
    const bool fits = a + shift >= axis && (extent == want || !extent.known() || !want.known());
    i.require(fits,
              fmt::format("input '{}' is {}: it must broadcast over the normalized axes {} to {} of x, which is {}",
                          i.op().inputs[input].name, describe(i, input), axis, rank - 1, describe(i, 0)));
  }
}

Shape statistics_shape(const Infer& i, int axis) {
  Shape shape = i.shape(0);
  for (size_t a = size_t(axis); a < shape.size(); ++a) shape[a] = 1;
  return shape;
}

/// y, then the statistics asked for. `first_parameter`: scale and what follows it up to `last`.
void infer_norm(Infer& i, int first_parameter, int last, int first_statistic, int statistics) {
  check_stash_type(i);
  const int axis = normalized_axis(i);
  for (int p = first_parameter; p <= last; ++p)
    if (i.has(p)) check_parameter(i, p, axis);
  i.same_as(0, 0);
  for (int s = first_statistic; s < first_statistic + statistics; ++s)
    if (i.wants(s)) i.output(s, dtype_of_onnx(int(i.integer("stash_type"))), statistics_shape(i, axis));
}

struct Rows {
  int64_t rows = 1, cols = 1;
};
Rows rows_of(const Extents& shape, int64_t axis) {
  Rows r;
  for (int a = 0; a < int(shape.size()); ++a)
    (a < positive_axis(axis, int(shape.size())) ? r.rows : r.cols) *= shape[size_t(a)];
  return r;
}

/// Position in a parameter of element `k` of x.
struct ParameterIndex {
  std::vector<int64_t> at;  // by column
  ParameterIndex(const RefArray* parameter, const Extents& shape, int axis) {
    if (!parameter) return;
    const Extents row(shape.begin() + axis, shape.end());
    Extents trailing = parameter->shape;  // leading extents of 1 before the normalized axes say nothing
    while (trailing.size() > row.size()) trailing.erase(trailing.begin());
    for (Index index(row); index.more(); ++index) at.push_back(broadcast_index(trailing, index.at()));
  }
};

struct NormOutputs {
  RefArray *y = nullptr, *mean = nullptr, *inverse = nullptr;
};

/// x has been summed with the residual. With `centered`, the mean is taken off.
void normalize_rows(const Reference& c, const std::vector<double>& x, const Extents& shape, int axis, double epsilon,
                    bool centered, const RefArray* scale, const RefArray* bias, NormOutputs out) {
  const Rows r = rows_of(shape, axis);
  const ParameterIndex scale_at(scale, shape, axis), bias_at(bias, shape, axis);
  c.parallel_for(r.rows, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const double* v = x.data() + row * r.cols;
      double mean = 0, squares = 0;
      if (centered) {
        for (int64_t k = 0; k < r.cols; ++k) mean += v[k];
        mean /= double(r.cols);
      }
      for (int64_t k = 0; k < r.cols; ++k) squares += (v[k] - mean) * (v[k] - mean);
      const double inverse = 1 / std::sqrt(squares / double(r.cols) + epsilon);
      for (int64_t k = 0; k < r.cols; ++k) {
        double y = (v[k] - mean) * inverse;
        if (scale) y *= scale->f[size_t(scale_at.at[size_t(k)])];
        if (bias) y += bias->f[size_t(bias_at.at[size_t(k)])];
        out.y->f[size_t(row * r.cols + k)] = y;
      }
      if (out.mean) out.mean->f[size_t(row)] = mean;
      if (out.inverse) out.inverse->f[size_t(row)] = inverse;
    }
  });
}

const RefArray* input_or_null(const Reference& c, int input) { return c.has(input) ? &c.in[size_t(input)] : nullptr; }
RefArray* output_or_null(Reference& c, int output) { return c.wants(output) ? &c.out[size_t(output)] : nullptr; }

/// x + residual (+ bias), rounded as the sum's own type where it is an output and so seen; else kept in double.
std::vector<double> summed(Reference& c, const std::vector<int>& addends, int sum_output) {
  std::vector<double> sum = c.in[0].f;
  for (int input : addends) {
    if (!c.has(input)) continue;
    const RefArray& r = c.in[size_t(input)];
    for (Index at(c.in[0].shape); at.more(); ++at)
      sum[size_t(at.flat())] += r.f[size_t(broadcast_index(r.shape, at.at()))];
  }
  if (c.wants(sum_output)) c.out[size_t(sum_output)].f = sum;
  return sum;
}

Cost norm_cost(const Problem& p, int each, bool centered) {
  const int64_t n = p.input(0).elements();
  const int64_t axis = p.op->attributes[0].name == "axis" ? p.integer("axis") : -1;
  const int64_t rows = rows_of(p.input(0).shape(), axis).rows;
  // mean: 1, or none; centre: 1; square and sum: 2; times the inverse: 1; then scale and bias; a row: divisions, root.
  return {.flops = ((centered ? 5 : 3) + each) * n + (centered ? 4 : 3) * rows,
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes(),
          .special = 2 * rows};
}

// ---- in smaller operators; kPower is x * (variance + epsilon)^-0.5

enum Square { kMul, kPow };
enum Root { kDiv, kReciprocal, kPower };

std::vector<int64_t> axes_from(Builder& b, V x) {
  const int rank = b.rank(x);
  std::vector<int64_t> axes(size_t(rank - positive_axis(b.integer("axis"), rank)));
  std::iota(axes.begin(), axes.end(), -int64_t(axes.size()));
  return axes;
}

V cast_if(Builder& b, V x, DType dtype) { return b.dtype(x) == dtype ? x : b.cast(x, dtype); }

struct Parts {
  V y, mean, inverse;
};

/// The wide, normalized x, without scale and bias.
Parts normalized(Builder& b, V x, bool centered, Square square, Root root, std::vector<int64_t> axes,
                 bool want_inverse) {
  V wide = cast_if(b, x, stash_type(b.integer("stash_type"), b.dtype(x)));
  Parts parts;
  V d = wide;
  if (centered) {
    parts.mean = b.reduce("ReduceMean", wide, axes);
    d = wide - parts.mean;
  }
  V variance = b.reduce("ReduceMean", square == kMul ? d * d : b.op("Pow", {d, b.constant(2, d)}), axes);
  V shifted = variance + b.number_like("epsilon", variance);
  if (root == kPower) {
    parts.inverse = b.op("Pow", {shifted, b.constant(-0.5, shifted)});
    parts.y = d * parts.inverse;
    return parts;
  }
  V deviation = b.sqrt(shifted);
  if (root == kReciprocal || want_inverse) parts.inverse = b.op("Reciprocal", {deviation});
  parts.y = root == kDiv ? d / deviation : d * parts.inverse;
  return parts;
}

V scaled(Builder& b, V y, V x, int scale, int bias) {
  y = cast_if(b, y, b.dtype(x));
  if (b.has(scale)) y = y * b.input(scale);
  if (bias >= 0 && b.has(bias)) y = y + b.input(bias);
  return y;
}

template <Square kSquare, Root kRoot>
void decompose_layer_norm(Builder& b) {
  V x = b.input(0);
  Parts parts = normalized(b, x, true, kSquare, kRoot, axes_from(b, x), true);
  b.result(scaled(b, parts.y, x, 1, 2));
  const DType stash = dtype_of_onnx(int(b.integer("stash_type")));
  b.result(cast_if(b, parts.mean, stash));
  b.result(cast_if(b, parts.inverse, stash));
}

/// TensorFlow: x * (scale * inverse) + (bias - mean * (scale * inverse)).
void decompose_layer_norm_affine(Builder& b) {
  V x = b.input(0);
  Parts parts = normalized(b, x, true, kMul, kReciprocal, axes_from(b, x), true);
  V factor = parts.inverse * b.input(1);
  V offset = parts.mean * factor;
  b.result(b.has(2) ? x * factor + (b.input(2) - offset) : x * factor - offset);
}

template <Square kSquare, Root kRoot>
void decompose_rms_norm(Builder& b) {
  V x = b.input(0);
  Parts parts = normalized(b, x, false, kSquare, kRoot, axes_from(b, x), false);
  b.result(scaled(b, parts.y, x, 1, -1));
}

template <bool kCentered, Square kSquare, Root kRoot>
void decompose_add_norm(Builder& b) {
  V sum = b.input(0) + b.input(1);
  Parts parts = normalized(b, sum, kCentered, kSquare, kRoot, axes_from(b, sum), false);
  b.result(scaled(b, parts.y, sum, 2, kCentered ? 3 : -1));
  b.result(sum);
}

// ---- gradients

/// d(x) of (x - mean) * inverse: inverse * (dn - mean(dn) - n * mean(dn * n)), n the normalized x; RMS: without
/// mean(dn). Written, since that of the decomposition subtracts nearly equal numbers in long rows. Returns n too, for
/// d(scale).
V norm_input_gradient(Gradient& g, V x, V scale, V dy, bool centered, V& n_out) {
  const std::vector<int64_t> axes = axes_from(g, x);
  Parts parts = normalized(g, x, centered, kMul, kReciprocal, axes, true);
  V wide_dy = cast_if(g, dy, g.dtype(parts.y));
  V dn = scale ? wide_dy * cast_if(g, scale, g.dtype(parts.y)) : wide_dy;
  V dx = dn - parts.y * g.reduce("ReduceMean", dn * parts.y, axes);
  if (centered) dx = dx - g.reduce("ReduceMean", dn, axes);
  n_out = cast_if(g, parts.y, g.dtype(x));
  return cast_if(g, dx * parts.inverse, g.dtype(x));
}

void norm_gradient(Gradient& g, V x, int scale, int bias, bool centered, const std::vector<int>& x_inputs,
                   int sum_output) {
  V dx;
  if (g.has_gradient(0)) {
    V n;
    dx = norm_input_gradient(g, x, g.input(scale), g.gradient(), centered, n);
    g.input_gradient(scale, g.unbroadcast(g.gradient() * n, g.input(scale)));
    if (bias >= 0 && g.has(bias)) g.input_gradient(bias, g.unbroadcast(g.gradient(), g.input(bias)));
  }
  if (sum_output >= 0 && g.has_gradient(sum_output)) dx = dx ? dx + g.gradient(sum_output) : g.gradient(sum_output);
  if (!dx) return;
  for (int input : x_inputs) g.input_gradient(input, g.unbroadcast(dx, g.input(input)));
}

constexpr StaticList<AttributeSpec, 24> kNormAttributes = {{"axis", -1}, {"epsilon", 1e-5}, {"stash_type", kOnnxF32}};
void infer_add_norm(Infer& i, int last) {
  const Shape sum = i.broadcast_shape({0, 1});
  i.require(sum == i.shape(0), "residual " + describe(i, 1) + " broadcasts x " + describe(i, 0) + " up");
  infer_norm(i, 2, last, 2, 0);
  if (i.wants(1)) i.same_as(1, 0);
}

// Both Skip forms: parameters from input 2 on, and every output but the mean.
void infer_skip_norm(Infer& i) {
  const int last = i.rank(0) - 1;
  for (int p = 2; p < i.op().inputs.size(); ++p)
    if (i.has(p)) check_parameter(i, p, last);
  i.require(contributed::broadcasts_onto(i.shape(1), i.shape(0)),
            "skip " + describe(i, 1) + " broadcasts the input " + describe(i, 0) + " up");
  i.same_as(0, 0);
  if (i.wants(2)) i.output(2, DType::kF32, statistics_shape(i, last));
  if (i.wants(3)) i.same_as(3, 0);
}

}  // namespace

constinit const OpSchema kLayerNormalization = {
    .name = "LayerNormalization",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc =
        "(x - mean) / sqrt(variance + epsilon) * scale + bias over the axes from `axis` to the last. Source: ONNX "
        "LayerNormalization-17.",
    .since = 17,
    .versions = {17},
    .inputs = {{"x", kFloats}, {"scale", kFloats, "x"}, {"bias", kFloats, "x", true}},
    .outputs = {{"y"}, {"mean", true}, {"inverse_deviation", true}},
    .attributes = kNormAttributes,
    .infer = [](Infer& i) { infer_norm(i, 1, 2, 1, 2); },
    .cost = [](const Problem& p) { return norm_cost(p, 1 + p.has(2), true); },
    .reference =
        [](Reference& c) {
          normalize_rows(c, c.in[0].f, c.in[0].shape, positive_axis(c.integer("axis"), c.in[0].rank()),
                         c.number("epsilon"), true, &c.in[1], input_or_null(c, 2),
                         {&c.out[0], output_or_null(c, 1), output_or_null(c, 2)});
        },
    .decompose = {decompose_layer_norm<kPow, kDiv>, decompose_layer_norm<kMul, kDiv>,
                  decompose_layer_norm<kPow, kReciprocal>, decompose_layer_norm<kMul, kReciprocal>,
                  decompose_layer_norm<kMul, kPower>, decompose_layer_norm_affine},
    .gradient = [](Gradient& g) { norm_gradient(g, g.input(0), 1, 2, true, {0}, -1); },
    .samples = {"x=f32[2,3,64] scale=f32[64] bias=f32[64]", "x=f32[3,5,127] scale=f32[127]",
                "x=f32[1,7,768] scale=f32[768] bias=f32[768]", "x=f32[4,6,8] axis=1 scale=f32[6,8] bias=f32[6,8]",
                "x=f32[2,5,3] axis=0 scale=f32[2,5,3] bias=f32[1]", "x=f32[0,5] scale=f32[5] bias=f32[5]",
                "x=f32[5,1] scale=f32[1] bias=f32[1]", "x=f64[3,33] scale=f64[33] epsilon=0.01",
                "x=f16[1,7,129] scale=f16[129] bias=f16[129]", "x=bf16[3,65] scale=bf16[65] bias=bf16[65]"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kRmsNormalization = {
    .name = "RMSNormalization",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc =
        "x / sqrt(mean of squares + epsilon) * scale over the axes from `axis` to the last. Source: ONNX "
        "RMSNormalization-23; Zhang and Sennrich, 2019.",
    .since = 23,
    .versions = {23},
    .inputs = {{"x", kFloats}, {"scale", kFloats, "x"}},
    .outputs = {{"y"}},
    .attributes = kNormAttributes,
    .infer = [](Infer& i) { infer_norm(i, 1, 1, 1, 0); },
    .cost = [](const Problem& p) { return norm_cost(p, 1, false); },
    .reference =
        [](Reference& c) {
          normalize_rows(c, c.in[0].f, c.in[0].shape, positive_axis(c.integer("axis"), c.in[0].rank()),
                         c.number("epsilon"), false, &c.in[1], nullptr, {&c.out[0]});
        },
    .decompose = {decompose_rms_norm<kMul, kReciprocal>, decompose_rms_norm<kPow, kReciprocal>,
                  decompose_rms_norm<kPow, kDiv>, decompose_rms_norm<kMul, kDiv>, decompose_rms_norm<kMul, kPower>},
    .gradient = [](Gradient& g) { norm_gradient(g, g.input(0), 1, -1, false, {0}, -1); },
    .samples = {"x=f32[2,3,64] scale=f32[64]", "x=f32[3,5,127] scale=f32[127]", "x=f16[1,7,4096] scale=f16[4096]",
                "x=bf16[0,5] scale=bf16[5]", "x=f32[4,6,8] axis=1 scale=f32[6,8]",
                "x=f64[3,17] scale=f64[1] epsilon=0.001", "x=f32[9,1] scale=f32[1]"},
    .tolerance = Tolerance::reduction(),
};

/// The same operator under the name that ONNX Runtime gives it, in the standard's own domain.
constinit const OpSchema kSimplifiedLayerNormalization = {
    .name = "SimplifiedLayerNormalization",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc =
        "RMSNormalization as exporters wrote it before it was in the standard. Source: ONNX Runtime, "
        "SimplifiedLayerNormalization-1.",
    .since = 1,
    .versions = {1},
    .inputs = {{"x", kFloats}, {"scale", kFloats, "x"}},
    .outputs = {{"y"}, {"inverse_deviation", true}},
    .attributes = kNormAttributes,
    .infer = [](Infer& i) { infer_norm(i, 1, 1, 1, 1); },
    .cost = [](const Problem& p) { return norm_cost(p, 1, false); },
    .reference =
        [](Reference& c) {
          normalize_rows(c, c.in[0].f, c.in[0].shape, positive_axis(c.integer("axis"), c.in[0].rank()),
                         c.number("epsilon"), false, &c.in[1], nullptr, {&c.out[0], nullptr, output_or_null(c, 1)});
        },
    .gradient = [](Gradient& g) { norm_gradient(g, g.input(0), 1, -1, false, {0}, -1); },
    .samples = {"x=f32[2,3,64] scale=f32[64]", "x=f32[3,5,127] scale=f32[127] epsilon=0.001",
                "x=f32[0,5] scale=f32[5]"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kAddLayerNormalization = {
    .name = "AddLayerNormalization",
    .domain = "ridgeline",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc = "LayerNormalization of x + residual, and the sum itself where it is wanted.",
    .inputs = {{"x", kFloats}, {"residual", kFloats, "x"}, {"scale", kFloats, "x"}, {"bias", kFloats, "x", true}},
    .outputs = {{"y"}, {"sum", true}},
    .attributes = kNormAttributes,
    .infer = [](Infer& i) { infer_add_norm(i, 3); },
    .cost = [](const Problem& p) { return norm_cost(p, 2 + p.has(3), true); },
    .reference =
        [](Reference& c) {
          const std::vector<double> sum = summed(c, {1}, 1);
          normalize_rows(c, sum, c.in[0].shape, positive_axis(c.integer("axis"), c.in[0].rank()), c.number("epsilon"),
                         true, &c.in[2], input_or_null(c, 3), {&c.out[0]});
        },
    .decompose = {decompose_add_norm<true, kPow, kDiv>, decompose_add_norm<true, kMul, kDiv>,
                  decompose_add_norm<true, kPow, kReciprocal>, decompose_add_norm<true, kMul, kReciprocal>},
    .gradient =
        [](Gradient& g) {
          norm_gradient(g, g.input(0) + g.input(1), 2, 3, true, {0, 1}, 1);
        },
    .samples = {"x=f32[2,3,64] residual=f32[2,3,64] scale=f32[64] bias=f32[64]",
                "x=f32[3,5,127] residual=f32[3,5,127] scale=f32[127]",
                "x=f32[4,6,8] residual=f32[6,8] axis=1 scale=f32[6,8]",
                "x=f32[0,5] residual=f32[0,5] scale=f32[5] bias=f32[5]",
                "x=f16[3,129] residual=f16[3,129] scale=f16[129] bias=f16[129]",
                "x=bf16[3,65] residual=bf16[3,65] scale=bf16[65]"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kAddRmsNormalization = {
    .name = "AddRMSNormalization",
    .domain = "ridgeline",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc = "RMSNormalization of x + residual, and the sum itself where it is wanted.",
    .inputs = {{"x", kFloats}, {"residual", kFloats, "x"}, {"scale", kFloats, "x"}},
    .outputs = {{"y"}, {"sum", true}},
    .attributes = kNormAttributes,
    .infer = [](Infer& i) { infer_add_norm(i, 2); },
    .cost = [](const Problem& p) { return norm_cost(p, 2, false); },
    .reference =
        [](Reference& c) {
          const std::vector<double> sum = summed(c, {1}, 1);
          normalize_rows(c, sum, c.in[0].shape, positive_axis(c.integer("axis"), c.in[0].rank()), c.number("epsilon"),
                         false, &c.in[2], nullptr, {&c.out[0]});
        },
    .decompose = {decompose_add_norm<false, kMul, kReciprocal>, decompose_add_norm<false, kPow, kReciprocal>,
                  decompose_add_norm<false, kPow, kDiv>, decompose_add_norm<false, kMul, kDiv>},
    .gradient =
        [](Gradient& g) {
          norm_gradient(g, g.input(0) + g.input(1), 2, -1, false, {0, 1}, 1);
        },
    .samples = {"x=f32[2,3,64] residual=f32[2,3,64] scale=f32[64]",
                "x=f32[3,5,127] residual=f32[3,5,127] scale=f32[127]", "x=f32[0,5] residual=f32[0,5] scale=f32[5]",
                "x=f16[3,129] residual=f16[3,129] scale=f16[129]"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kSkipLayerNormalization = {
    .name = "SkipLayerNormalization",
    .domain = "com.microsoft",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc = "LayerNormalization of input + skip + bias over the last axis, and that sum; as in ONNX Runtime.",
    .since = 1,
    .versions = {1},
    .inputs = {{"input", kFloats},
               {"skip", kFloats, "input"},
               {"gamma", kFloats, "input"},
               {"beta", kFloats, "input", true},
               {"bias", kFloats, "input", true}},
    .outputs = {{"output"}, {"mean", true}, {"inverse_deviation", true}, {"sum", true}},
    .attributes = {{"epsilon", 1e-12}},
    .infer =
        [](Infer& i) {
          infer_skip_norm(i);
          if (i.wants(1)) i.output(1, DType::kF32, statistics_shape(i, i.rank(0) - 1));
        },
    .cost = [](const Problem& p) { return norm_cost(p, 2 + p.has(3) + p.has(4), true); },
    .reference =
        [](Reference& c) {
          const std::vector<double> sum = summed(c, {1, 4}, 3);
          normalize_rows(c, sum, c.in[0].shape, c.in[0].rank() - 1, c.number("epsilon"), true, &c.in[2],
                         input_or_null(c, 3), {&c.out[0], output_or_null(c, 1), output_or_null(c, 2)});
        },
    .decompose = {contributed::decompose_skip_layer_norm},
    .no_gradient = "inference only in its standard; write it as Add and LayerNormalization",
    .samples = {"input=f32[2,3,64] skip=f32[2,3,64] gamma=f32[64] beta=f32[64] bias=f32[64]",
                "input=f32[2,3,65] skip=f32[3,65] gamma=f32[65]",
                "input=f32[0,2,5] skip=f32[0,2,5] gamma=f32[5] epsilon=0.001"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kSkipSimplifiedLayerNormalization = {
    .name = "SkipSimplifiedLayerNormalization",
    .domain = "com.microsoft",
    .family = "normalize",
    .kind = OpKind::kReduction,
    .doc = "RMSNormalization of input + skip + bias over the last axis, and that sum; as in ONNX Runtime.",
    .since = 1,
    .versions = {1},
    .inputs = {{"input", kFloats},
               {"skip", kFloats, "input"},
               {"gamma", kFloats, "input"},
               {"bias", kFloats, "input", true}},
    .outputs = {{"output"}, {"mean", true}, {"inverse_deviation", true}, {"sum", true}},
    .attributes = {{"epsilon", 1e-12}},
    .infer =
        [](Infer& i) {
          infer_skip_norm(i);  // 'mean' stands for nothing here: it is 0 in ONNX Runtime too
          if (i.wants(1)) i.output(1, DType::kF32, statistics_shape(i, i.rank(0) - 1));
        },
    .cost = [](const Problem& p) { return norm_cost(p, 2 + p.has(3), false); },
    .reference =
        [](Reference& c) {
          const std::vector<double> sum = summed(c, {1, 3}, 3);
          normalize_rows(c, sum, c.in[0].shape, c.in[0].rank() - 1, c.number("epsilon"), false, &c.in[2], nullptr,
                         {&c.out[0], nullptr, output_or_null(c, 2)});
        },
    .decompose = {contributed::decompose_skip_rms_norm},
    .no_gradient = "inference only in its standard; write it as Add and RMSNormalization",
    .samples = {"input=f32[2,3,64] skip=f32[2,3,64] gamma=f32[64] bias=f32[64]",
                "input=f32[2,3,65] skip=f32[3,65] gamma=f32[65]",
                "input=f32[0,2,5] skip=f32[0,2,5] gamma=f32[5] epsilon=0.001"},
    .tolerance = Tolerance::reduction(),
};

std::span<const OpSchema* const> normalize_ops() {
  static constexpr const OpSchema* kOps[] = {
      &kLayerNormalization,  &kRmsNormalization,       &kSimplifiedLayerNormalization,    &kAddLayerNormalization,
      &kAddRmsNormalization, &kSkipLayerNormalization, &kSkipSimplifiedLayerNormalization};
  return kOps;
}

}  // namespace ridgeline
