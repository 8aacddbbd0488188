// Slices that a condition keeps, a window about the centre, and the bits of elements seen as another type.
// Source: the ONNX operator standard, Compress-11, CenterCropPad-18, BitCast-26.
#include <algorithm>
#include <array>

#include "ops/families.h"
#include "ops/movement.h"

namespace ridgeline {

namespace {

// ---- Compress

/// Positions along the axis (of the flat tensor without one) that the condition keeps.
std::vector<int64_t> kept(const RefArray& condition) {
  std::vector<int64_t> positions;
  for (int64_t k = 0; k < condition.elements(); ++k)
    if (condition.integer(k)) positions.push_back(k);
  return positions;
}

void infer_compress(Infer& i) {
  i.require(i.rank(0) >= 1, "'input' is a scalar; allowed: rank 1 and above");
  i.require(i.rank(1) == 1, [&] { return fmt::format("'condition' is {}; allowed: rank 1", text(i.shape(1))); });
  const bool flat = !i.attributes().has("axis");
  const int axis = flat ? 0 : i.axis(i.integer("axis"), i.rank(0));
  Shape result = flat ? Shape{product(i.shape(0))} : i.shape(0);
  const Tensor* condition = i.constant(1);
  if (!condition) {
    throw NeedsValues(1, fmt::format("Compress: unsupported: the output's shape depends on the content of input "
                                     "'condition', which is not a constant"));
  }
  int64_t count = 0, last = -1;
  for (int64_t k = 0; k < condition->elements(); ++k) {
    if (condition->i64(k) == 0) continue;
    ++count;
    last = k;
  }
  Dim& extent = result[size_t(axis)];
  i.require(!extent.known() || last < extent.value(), [&] {
    return fmt::format("'condition' keeps position {} of an extent of {}: allowed are 0 to {}", last, extent.text(),
                       extent.value() - 1);
  });
  extent = count;
  i.output(0, i.dtype(0), std::move(result));
}

void reference_compress(Reference& r) {
  const RefArray& x = r.in[0];
  const bool flat = !r.attributes->has("axis");
  const AxisSpan span =
      flat ? AxisSpan{1, x.elements(), 1} : span_of(x.shape, positive_axis(r.integer("axis"), x.rank()));
  const std::vector<int64_t> rows = kept(r.in[1]);
  if (!rows.empty() && rows.back() >= span.extent)
    fail(ErrorCode::kBadInput, "Compress: 'condition' keeps position {} of an extent of {}", rows.back(), span.extent);
  int64_t to = 0;
  for (int64_t o = 0; o < span.outer; ++o)
    for (int64_t row : rows)
      for (int64_t k = 0; k < span.inner; ++k) r.out[0].copy(to++, x, (o * span.extent + row) * span.inner + k);
}

void gradient_compress(Gradient& g) {
  Attributes attributes;
  const bool flat = g.rank(g.input(0)) > 1 && g.rank(g.output()) == 1;  // of one axis both are the same
  if (!flat) attributes.set("axis", g.rank(g.input(0)) > 1 ? g.integer("axis") : 0);
  gradient_by_selection(g, "Compress", std::move(attributes));
}

// ---- CenterCropPad

/// The axes that 'shape' speaks of, in its order.
template <typename Context>
std::vector<int64_t> cropped_axes(const Context& c, int rank) {
  std::vector<int64_t> axes = c.integers("axes");
  if (axes.empty())
    for (int a = 0; a < rank; ++a) axes.push_back(a);
  return axes;
}

void infer_center_crop_pad(Infer& i) {
  Shape result = i.shape(0);
  const std::vector<int64_t> axes = cropped_axes(i, int(result.size()));
  i.axes(axes, int(result.size()));
  i.require(i.rank(1) == 1, [&] { return fmt::format("'shape' is {}; allowed: rank 1", text(i.shape(1))); });
  const std::vector<Dim> sizes = i.need_values(1);
  i.require(sizes.size() == axes.size(),
            [&] { return fmt::format("'shape' has {} entries for {} axes", sizes.size(), axes.size()); });
  for (size_t k = 0; k < axes.size(); ++k) {
    i.require(!sizes[k].known() || sizes[k].value() >= 0,
              [&] { return fmt::format("'shape' has the entry {}; allowed: 0 and more", sizes[k].text()); });
    result[size_t(i.axis(axes[k], int(result.size())))] = sizes[k];
  }
  i.output(0, i.dtype(0), std::move(result));
}

/// A Slice where it is too large, a Pad where it is too small; an odd one goes or comes at the end.
void decompose_center_crop_pad(Builder& b) {
  V x = b.input(0);
  const Shape& shape = b.shape(x);
  const std::vector<int64_t> axes = cropped_axes(b, int(shape.size())), sizes = b.values(b.input(1));
  if (sizes.size() != axes.size())
    fail(ErrorCode::kUnsupported, "unsupported: the meaning of CenterCropPad while its 'shape' is symbolic");
  std::vector<int64_t> starts, ends, sliced, pads(2 * shape.size(), 0);
  bool padded = false;
  for (size_t k = 0; k < axes.size(); ++k) {
    const size_t axis = size_t(positive_axis(axes[k], int(shape.size())));
    if (!shape[axis].known())
      fail(ErrorCode::kUnsupported,
           "unsupported: the meaning of CenterCropPad on the symbolic extent {}: bind it first", shape[axis].text());
    const int64_t extent = shape[axis].value(), wanted = sizes[k];
    if (wanted < extent) {
      starts.push_back((extent - wanted) / 2);
      ends.push_back(starts.back() + wanted);
      sliced.push_back(int64_t(axis));
    } else if (wanted > extent) {
      pads[axis] = (wanted - extent) / 2;
      pads[axis + shape.size()] = wanted - extent - pads[axis];
      padded = true;
    }
  }
  if (!sliced.empty())
    x = b.op("Slice", {x, b.integers_constant(starts), b.integers_constant(ends), b.integers_constant(sliced)});
  if (padded) x = b.op("Pad", {x, b.integers_constant(pads)});
  b.result(sliced.empty() && !padded ? b.op("Identity", {x}) : x);
}

// ---- BitCast

/// Every type there is.
constexpr TypeSet kEveryType = ((TypeSet(1) << kDTypeCount) - 1) & ~type_bit(DType::kNone);

void infer_bit_cast(Infer& i) {
  const DType to = dtype_of_onnx(int(i.integer("to")));
  i.require(to != DType::kNone, [&] { return fmt::format("to = {}: there is no such type here", i.integer("to")); });
  i.require(info(to).bits == info(i.dtype(0)).bits, [&] {
    return fmt::format("to = {}, of {} bits, from {}, of {} bits; allowed: types of equal width", name(to),
                       info(to).bits, name(i.dtype(0)), info(i.dtype(0)).bits);
  });
  i.output(0, to, i.shape(0));
}

void reference_bit_cast(Reference& r) {
  const RefArray& x = r.in[0];
  RefArray& y = r.out[0];
  for (int64_t k = 0; k < x.elements(); ++k) {
    std::array<char, 8> bits{};
    if (x.is_float())
      store_f64(x.dtype, bits.data(), 0, x.f[size_t(k)]);
    else
      store_i64(x.dtype, bits.data(), 0, x.i[size_t(k)]);
    if (y.is_float())
      y.f[size_t(k)] = load_f64(y.dtype, bits.data(), 0);
    else
      y.i[size_t(k)] = load_i64(y.dtype, bits.data(), 0);
  }
}

}  // namespace

constinit const OpSchema kCompress = {
    .name = "Compress",
    .family = "movement",
    .kind = kMovement,
    .doc =
        "the slices along axis (elements of the flat input without one) for which condition is true; a condition that "
        "is too short keeps nothing past its end. Source: ONNX Compress-11",
    .since = 11,
    .versions = {9, 11, 28},
    .inputs = {{"input"}, {"condition", kBools}},
    .outputs = {{"output"}},
    .attributes = {{"axis", AttributeType::kInt}},
    .infer = infer_compress,
    .cost = cost_of_selection,
    .reference = reference_compress,
    .gradient = gradient_compress,
    .samples = {"input=f32[3,2] condition=bool{0,1,1} axis=0", "input=f32[3,65] condition=bool{0,1} axis=0",
                "input=f32[2,3,7] condition=bool{1,0,1} axis=-2", "input=i64[3,2] condition=bool{0,1,0,0,1}",
                "input=f32[3,2] condition=bool{0,0,0} axis=0", "input=f16[0,2] condition=bool{0,0}",
                "input=bool[5,3] condition=bool{1,0,0,1,1} axis=0"},
};

constinit const OpSchema kCenterCropPad = {
    .name = "CenterCropPad",
    .family = "movement",
    .kind = kMovement,
    .doc =
        "axes cut about their centre to the extents in shape, or filled up with zeros on both sides; an odd one is at "
        "the end. Source: ONNX CenterCropPad-18",
    .since = 18,
    .versions = {18},
    .inputs = {{"input_data"}, {"shape", kIndices}},
    .outputs = {{"output_data"}},
    .attributes = {{"axes", AttributeType::kInts}},
    .infer = infer_center_crop_pad,
    .cost = cost_of_selection,
    .decompose = {decompose_center_crop_pad},
    .samples = {"input_data=f32[7,8,3] shape=i64{4,9,3}", "input_data=f32[2,3,9] shape=i32{5,2} axes=-1,1",
                "input_data=f32[3,4] shape=i64{3,4}", "input_data=i64[0,3] shape=i64{2,2}",
                "input_data=f16[5] shape=i64{0}"},
};

constinit const OpSchema kBitCast = {
    .name = "BitCast",
    .family = "movement",
    .kind = kMovement,
    .doc = "the bits of each element as another type of the same width. Source: ONNX BitCast-26",
    .since = 26,
    .versions = {26},
    .inputs = {{"input", kEveryType}},
    .outputs = {{"output"}},
    .attributes = {{"to", AttributeType::kInt, kRequired}},
    .infer = infer_bit_cast,
    .cost = cost_of_copy,
    .reference = reference_bit_cast,
    .no_gradient = "bits have no derivative",
    .samples = {"input=f32[3,65] to=6", "input=i32[2,5] to=1", "input=f64[7] to=7", "input=u16[3] to=10",
                "input=i8[] to=2", "input=bf16[0,3] to=4"},
};

std::span<const OpSchema* const> movement_select_ops() {
  static constexpr const OpSchema* kOps[] = {&kBitCast, &kCenterCropPad, &kCompress};
  return kOps;
}

}  // namespace ridgeline
