// Between real numbers and the integers (or 8-bit floats) that stand for them. Source: ONNX QuantizeLinear-28,
// DequantizeLinear-28, DynamicQuantizeLinear-11.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/catalogue.h"
#include "ops/common.h"

namespace ridgeline {
namespace {

constexpr TypeSet kScaleOnly = type_bit(DType::kF8E8M0);
constexpr TypeSet kQuantized = type_bit(DType::kI8) | type_bit(DType::kU8) | type_bit(DType::kI16) |
                               type_bit(DType::kU16) | (kSmall & ~kScaleOnly);
constexpr TypeSet kInt32 = type_bit(DType::kI32);

struct Range {
  double least, most;
};
Range range_of(DType dtype) {
  if (is_float(dtype)) return {-info(dtype).largest, info(dtype).largest};
  const int bits = info(dtype).bits;
  return info(dtype).is_signed ? Range{-std::ldexp(1, bits - 1), std::ldexp(1, bits - 1) - 1}
                               : Range{0, std::ldexp(1, bits) - 1};
}

/// One number, one for each slice along `axis`, or one for each block of `block_size` along it.
void check_scale(Infer& i, int input) {
  if (!i.has(input)) return;
  const Shape &x = i.shape(0), &s = i.shape(input);
  auto same = [](const Dim& a, const Dim& b) { return !a.known() || !b.known() || a == b; };
  const int64_t block = i.integer("block_size");
  i.require(block >= 0, fmt::format("block_size = {}", block));
  if (block == 0 && (s.empty() || (s.size() == 1 && s[0].is(1)))) return;
  const int axis = i.axis(i.integer("axis"), i.rank(0));
  if (block == 0) {
    i.require(s.size() == 1 && same(s[0], x[size_t(axis)]),
              fmt::format("input '{}' is {}: one number, or one for each of the {} slices along axis {}, is wanted",
                          i.op().inputs[input].name, describe(i, input), x[size_t(axis)].text(), axis));
    return;
  }
  bool fits = s.size() == x.size();
  for (size_t a = 0; fits && a < x.size(); ++a) fits = same(s[a], int(a) == axis ? ceil_div(x[a], block) : x[a]);
  i.require(fits, fmt::format("input '{}' is {}: one number for each block of {} along axis {} of {} is wanted",
                              i.op().inputs[input].name, describe(i, input), block, axis, describe(i, 0)));
}

/// Which scale belongs to the element of x at `at`.
class ScaleIndex {
 public:
  ScaleIndex(const Reference& c)
      : scale_(c.in[1].shape),
        block_(c.integer("block_size")),
        axis_(positive_axis(c.integer("axis"), c.in[0].rank())) {
    single_ = block_ == 0 && element_count(scale_) == 1;
  }
  int64_t operator()(Extents at) const {
    if (single_) return 0;
    if (block_ == 0) return at[size_t(axis_)];
    at[size_t(axis_)] /= block_;
    return broadcast_index(scale_, at);
  }

 private:
  Extents scale_;
  int64_t block_;
  int axis_;
  bool single_;
};

/// In which type the quotient is rounded: `precision`, else f32 unless an operand is wider.
DType division_type(const Reference& c) {
  if (const int64_t precision = c.integer("precision"); precision != 0) return dtype_of_onnx(int(precision));
  const DType x = c.in[0].dtype, scale = c.in[1].dtype;
  return x == DType::kF64 || scale == DType::kF64 || scale == DType::kI32 ? DType::kF64 : DType::kF32;
}

double rounded(DType dtype, double value) {
  uint64_t bits = 0;
  store_f64(dtype, &bits, 0, value);
  return load_f64(dtype, &bits, 0);
}

void quantize_reference(Reference& c) {
  const RefArray &x = c.in[0], &scale = c.in[1];
  RefArray& y = c.out[0];
  const ScaleIndex scale_of(c);
  const Range range = range_of(y.dtype);
  const bool saturate = !contains(kFloat8, y.dtype) || c.flag("saturate");
  const DType type = division_type(c);
  for (Index at(x.shape); at.more(); ++at) {
    const int64_t s = scale_of(at.at());
    double v = rounded(type, rounded(type, x.number(at.flat())) / rounded(type, scale.number(s)));
    if (!y.is_float()) v = std::nearbyint(v);  // half to even
    if (c.has(2)) v += c.in[2].number(s);
    if (saturate) v = std::isnan(v) ? (y.is_float() ? v : 0) : std::clamp(v, range.least, range.most);
    y.set(at.flat(), v);
  }
}

void dequantize_reference(Reference& c) {
  const RefArray &x = c.in[0], &scale = c.in[1];
  const ScaleIndex scale_of(c);
  for (Index at(x.shape); at.more(); ++at) {
    const int64_t s = scale_of(at.at());
    c.out[0].f[size_t(at.flat())] = (x.number(at.flat()) - (c.has(2) ? c.in[2].number(s) : 0)) * scale.f[size_t(s)];
  }
}

/// The range of x, with 0 in it, over 255 steps; in f32, as the standard's function body computes it.
void dynamic_quantize_reference(Reference& c) {
  const RefArray& x = c.in[0];
  float least = 0, most = 0;
  for (double v : x.f) {
    least = std::min(least, float(v));
    most = std::max(most, float(v));
  }
  const float scale = (most - least) / 255.0f;
  const float zero = scale == 0 ? 0.0f : std::nearbyint(std::clamp(0 - least / scale, 0.0f, 255.0f));
  c.out[1].f[0] = scale;
  c.out[2].i[0] = int64_t(zero);
  for (size_t k = 0; k < x.f.size(); ++k) {
    const float steps = scale == 0 ? 0.0f : std::nearbyint(float(x.f[k]) / scale);
    c.out[0].i[k] = int64_t(std::clamp(steps + zero, 0.0f, 255.0f));
  }
}

Cost scaled_cost(const Problem& p) {
  const int64_t n = p.input(0).elements();
  return {.flops = (2 + p.has(2)) * n,
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes(),
          .special = p.op->name == "QuantizeLinear" ? n : 0};
}

DType output_dtype(const Infer& i, DType fallback) {
  const int64_t id = i.integer("output_dtype");
  return id == 0 ? fallback : dtype_of_onnx(int(id));
}

}  // namespace

constinit const OpSchema kQuantizeLinear = {
    .name = "QuantizeLinear",
    .family = "quantize",
    .kind = OpKind::kOpaque,
    .doc =
        "saturate(round half to even(x / scale) + zero_point), with one scale, one a slice of `axis`, or one a block. "
        "Source: ONNX QuantizeLinear-28.",
    .since = 23,
    .versions = {10, 13, 19, 21, 23, 24, 25, 28},
    .inputs = {{"x", kFloats | kInt32}, {"scale", kFloats | kInt32 | kScaleOnly}, {"zero_point", kQuantized, "", true}},
    .outputs = {{"y"}},
    .attributes = {{"axis", 1}, {"block_size", 0}, {"output_dtype", 0}, {"precision", 0}, {"saturate", 1}},
    .infer =
        [](Infer& i) {
          check_scale(i, 1);
          check_scale(i, 2);
          const int64_t precision = i.integer("precision");
          i.require(precision == 0 || contains(kFloats, dtype_of_onnx(int(precision))),
                    fmt::format("precision = {}; allowed are {}", precision, text(kFloats)));
          const DType dtype = i.has(2) ? i.dtype(2) : output_dtype(i, DType::kU8);
          if (i.has(2))
            i.require(dtype == output_dtype(i, dtype), fmt::format("output_dtype = {}, but zero_point is {}",
                                                                   i.integer("output_dtype"), describe(i, 2)));
          i.require(contains(kQuantized, dtype), fmt::format("output_dtype = {} is unsupported: allowed are {}",
                                                             i.integer("output_dtype"), text(kQuantized)));
          i.output(0, dtype, i.shape(0));
        },
    .cost = scaled_cost,
    .reference = quantize_reference,
    .no_gradient = kNoGradientDiscrete,
    .samples = {"x=f32[3,5,17] scale=f32[] zero_point=u8[]", "x=f32[2,5,7,3] scale=f32[5] zero_point=i8[5]",
                "x=f32[4,33] scale=f32[4,3] zero_point=i8[4,3] block_size=11",
                "x=f32[3,9] scale=f32[3] zero_point=u16[3] axis=0", "x=f32[0,5] scale=f32[]",
                "x=f16[7,9] scale=f16[] zero_point=i8[]", "x=f32[3,8] scale=f32[] zero_point=i4[]",
                "x=f32[5,7] scale=f32[5] zero_point=f8e4m3fnuz[5] axis=0", "x=f32[9] scale=f32[] output_dtype=23",
                "x=f32[3,5] scale=f32[] zero_point=i2[] precision=10"},
    .tolerance = Tolerance::elementwise(1),  // a quotient that lies between two integers may go either way
};

constinit const OpSchema kDequantizeLinear = {
    .name = "DequantizeLinear",
    .family = "quantize",
    .kind = OpKind::kOpaque,
    .doc =
        "(x - zero_point) * scale, with one scale, one a slice of `axis`, or one a block. Source: ONNX "
        "DequantizeLinear-28.",
    .since = 23,
    .versions = {10, 13, 19, 21, 23, 24, 25, 28},
    .inputs = {{"x", kQuantized | kInt32},
               {"scale", kFloats | kScaleOnly},
               {"zero_point", kQuantized | kInt32, "x", true}},
    .outputs = {{"y"}},
    .attributes = {{"axis", 1}, {"block_size", 0}, {"output_dtype", 0}},
    .infer =
        [](Infer& i) {
          check_scale(i, 1);
          check_scale(i, 2);
          const DType dtype = output_dtype(i, i.dtype(1));
          i.require(contains(kFloats, dtype),
                    fmt::format("output_dtype = {} with a scale in {} is unsupported: the result is of one of {}",
                                i.integer("output_dtype"), name(i.dtype(1)), text(kFloats)));
          i.output(0, dtype, i.shape(0));
        },
    .cost = scaled_cost,
    .reference = dequantize_reference,
    .no_gradient = kNoGradientDiscrete,
    .samples = {"x=u8[3,5,17] scale=f32[] zero_point=u8[]", "x=i8[2,5,7,3] scale=f32[5] zero_point=i8[5]",
                "x=i8[4,33] scale=f32[4,3] block_size=11", "x=i32[3,9] scale=f32[3] axis=0", "x=u8[0,5] scale=f32[]",
                "x=i8[7,9] scale=f16[] zero_point=i8[]", "x=u4[3,8] scale=f32[] zero_point=u4[]",
                "x=f4e2m1[4,32] scale=f8e8m0[4,1] block_size=32 output_dtype=1", "x=f6e3m2[3,7] scale=f32[3] axis=0",
                "x=f8e5m2fnuz[7] scale=f16[]", "x=u2[3,5] scale=f32[] zero_point=u2[]"},
    .tolerance = Tolerance::elementwise(2),
};

constinit const OpSchema kDynamicQuantizeLinear = {
    .name = "DynamicQuantizeLinear",
    .family = "quantize",
    .kind = OpKind::kOpaque,
    .doc =
        "Quantizes to u8 with the scale and zero point that the range of x asks for. Source: ONNX "
        "DynamicQuantizeLinear-11.",
    .since = 11,
    .versions = {11},
    .inputs = {{"x", type_bit(DType::kF32)}},
    .outputs = {{"y"}, {"scale"}, {"zero_point"}},
    .infer =
        [](Infer& i) {
          i.output(0, DType::kU8, i.shape(0));
          i.output(1, DType::kF32, {});
          i.output(2, DType::kU8, {});
        },
    .cost =
        [](const Problem& p) {
          const int64_t n = p.input(0).elements();
          return Cost{.flops = 4 * n, .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes(), .special = n};
        },
    .reference = dynamic_quantize_reference,
    .no_gradient = kNoGradientDiscrete,
    .samples = {"x=f32[3,5,17]", "x=f32[1]", "x=f32[0,4]", "x=f32[33,9]"},
    .tolerance = Tolerance::elementwise(1),
};

std::span<const OpSchema* const> quantize_ops() {
  static constexpr const OpSchema* kOps[] = {&kQuantizeLinear, &kDequantizeLinear, &kDynamicQuantizeLinear};
  return kOps;
}

}  // namespace ridgeline
