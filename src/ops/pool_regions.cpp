// Pools over regions of interest, and a maximum put back where it came from. Source: the ONNX operator standard,
// RoiAlign-16, MaxRoiPool-1 (Girshick, Fast R-CNN, 2015), MaxUnpool-11; He et al., Mask R-CNN, 2017.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/saturate.h"
#include "ops/families.h"
#include "ops/movement.h"

namespace ridgeline {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

void require_image(const Infer& i) {
  i.require(i.rank(0) == 4, [&] { return "input 'X' is " + describe(i, 0) + ": [N, C, H, W] is wanted"; });
}

/// 'rois' is [n, `columns`]; its n.
Dim regions(const Infer& i, int64_t columns) {
  const Shape& rois = i.shape(1);
  i.require(rois.size() == 2 && (!rois[1].known() || rois[1].is(columns)),
            [&] { return fmt::format("'rois' is {}; allowed: [regions, {}]", text(rois), columns); });
  return rois[0];
}

int64_t checked_image(const Reference& r, double image) {
  if (!(image >= 0 && image < double(r.in[0].dim(0))))
    fail(ErrorCode::kBadInput, "{}: a region is of image {}, there are {}", r.op->name, image, r.in[0].dim(0));
  return int64_t(image);
}

// ---- RoiAlign

constexpr int64_t kMostSamples = 1024;  // a bin and axis; nothing is gained past a few a pixel
constexpr double kFurthest = 0x1p30;    // elements from the image to a region's corner

void infer_roi_align(Infer& i) {
  require_image(i);
  const Dim count = regions(i, 4);
  i.require(i.rank(2) == 1 && (!count.known() || !i.dim(2, 0).known() || i.dim(2, 0) == count),
            [&] { return fmt::format("'batch_indices' is {} for {} regions", text(i.shape(2)), count.text()); });
  const int64_t height = i.integer("output_height"), width = i.integer("output_width");
  i.require(height >= 1 && width >= 1,
            [&] { return fmt::format("output_height = {}, output_width = {}; allowed: 1 and more", height, width); });
  const int64_t ratio = i.integer("sampling_ratio");
  i.require(ratio >= 0 && ratio <= kMostSamples,
            [&] { return fmt::format("sampling_ratio = {}; allowed: 0 to {}", ratio, kMostSamples); });
  const std::string mode = i.string("mode"), transform = i.string("coordinate_transformation_mode");
  i.require(mode == "avg" || mode == "max", [&] { return fmt::format("mode = '{}'; allowed: avg, max", mode); });
  i.require(transform == "half_pixel" || transform == "output_half_pixel", [&] {
    return fmt::format("coordinate_transformation_mode = '{}'; allowed: half_pixel, output_half_pixel", transform);
  });
  i.output(0, i.dtype(0), {count, i.dim(0, 1), height, width});
}

/// Between two elements of an axis.
struct Sample {
  int64_t low, high;
  double of_low, of_high;
};

/// What one bin reads along one axis: samples that lie outside the image are counted, and are zeros.
struct Bin {
  std::vector<Sample> inside;
  double count = 0;
};

Bin bin_of(double begin, double length, double count, int64_t extent) {
  Bin bin;
  bin.count = std::max(0.0, count);
  const double step = length / bin.count, last = double(extent - 1);
  // A region may be far larger than the image: only samples that can lie inside are looked at.
  double first = 0, end = bin.count;
  if (step > 0) {
    first = std::clamp(std::floor((-1 - begin) / step) - 1, 0.0, bin.count);
    end = std::clamp(std::ceil((double(extent) - begin) / step) + 1, first, bin.count);
  }
  for (int64_t k = int64_t(first); k < int64_t(end) && extent > 0; ++k) {
    const double at = begin + (double(k) + 0.5) * length / bin.count;
    if (!(at >= -1 && at <= double(extent))) continue;
    const double x = std::clamp(at, 0.0, last), low = std::floor(x);
    bin.inside.push_back({int64_t(low), std::min<int64_t>(int64_t(low) + 1, extent - 1), 1 - (x - low), x - low});
  }
  return bin;
}

std::vector<Bin> bins_of(const Reference& r, int64_t region, int axis, int64_t bins) {
  const bool half = r.string("coordinate_transformation_mode") == "half_pixel";
  const double scale = r.number("spatial_scale"), shift = half ? 0.5 : 0;
  const double begin = r.in[1].f[size_t(region * 4 + 1 - axis)] * scale - shift;
  const double end = r.in[1].f[size_t(region * 4 + 3 - axis)] * scale - shift;
  const double whole = half ? end - begin : std::max(end - begin, 1.0), length = whole / double(bins);
  const int64_t ratio = r.integer("sampling_ratio");
  std::vector<Bin> result;
  for (int64_t p = 0; p < bins; ++p) {
    const double count = ratio > 0 ? double(ratio) : std::ceil(length);
    result.push_back(bin_of(begin + double(p) * length, length, count, r.in[0].dim(2 + axis)));
  }
  return result;
}

/// The mean of the samples; or, as the standard's cases have it, the largest share of one element in one sample.
double pooled(const double* plane, int64_t width, const Bin& y, const Bin& x, bool mean) {
  const double count = y.count * x.count;
  const bool all = double(y.inside.size() * x.inside.size()) == count;
  double sum = 0, best = all && count > 0 ? -std::numeric_limits<double>::infinity() : 0;
  for (const Sample& v : y.inside) {
    for (const Sample& h : x.inside) {
      const double a = v.of_low * h.of_low * plane[v.low * width + h.low],
                   b = v.of_low * h.of_high * plane[v.low * width + h.high],
                   c = v.of_high * h.of_low * plane[v.high * width + h.low],
                   d = v.of_high * h.of_high * plane[v.high * width + h.high];
      sum += a + b + c + d;
      best = std::max({best, a, b, c, d});
    }
  }
  return mean ? sum / std::max(count, 1.0) : best;
}

void reference_roi_align(Reference& r) {
  const RefArray& x = r.in[0];
  const int64_t height = r.out[0].dim(2), width = r.out[0].dim(3), plane = x.dim(2) * x.dim(3);
  const bool mean = r.string("mode") == "avg";
  std::vector<int64_t> images;
  for (int64_t k = 0; k < r.out[0].dim(0); ++k) images.push_back(checked_image(r, double(r.in[2].i[size_t(k)])));
  r.parallel_for(r.out[0].dim(0), [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k) {
      double* y = r.out[0].f.data() + k * x.dim(1) * height * width;
      const double *corners = r.in[1].f.data() + 4 * k, scale = r.number("spatial_scale");
      if (!std::all_of(corners, corners + 4, [&](double v) { return std::fabs(v * scale) <= kFurthest; })) {
        std::fill_n(y, x.dim(1) * height * width, kNaN);
        continue;
      }
      const std::vector<Bin> rows = bins_of(r, k, 0, height), columns = bins_of(r, k, 1, width);
      for (int64_t c = 0; c < x.dim(1); ++c)
        for (int64_t v = 0; v < height; ++v)
          for (int64_t h = 0; h < width; ++h)
            *y++ = pooled(x.f.data() + (images[size_t(k)] * x.dim(1) + c) * plane, x.dim(3), rows[size_t(v)],
                          columns[size_t(h)], mean);
    }
  });
}

Cost cost_of_roi_align(const Problem& p) {
  // How many samples a bin has without a ratio depends on the regions: two by two is usual.
  const int64_t ratio = p.integer("sampling_ratio") > 0 ? p.integer("sampling_ratio") : 2;
  return {.flops = saturated_product({8, ratio, ratio, p.output().elements()}),
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes()};
}

// ---- MaxRoiPool

void infer_max_roi_pool(Infer& i) {
  require_image(i);
  const Dim count = regions(i, 5);
  const std::vector<int64_t> size = i.integers("pooled_shape");
  i.require(size.size() == 2 && size[0] >= 1 && size[1] >= 1,
            [&] { return fmt::format("pooled_shape = {}; allowed: two numbers from 1 on", fmt::join(size, ",")); });
  i.output(0, i.dtype(0), {count, i.dim(0, 1), size[0], size[1]});
}

/// Elements of an axis that bin p of `bins` sees: the region's ends are rounded to elements, both belong to it.
std::pair<int64_t, int64_t> seen(double begin, double end, int64_t p, int64_t bins, int64_t extent) {
  const double first = std::round(begin), length = std::max(std::round(end) - first + 1, 1.0) / double(bins);
  const double most = double(extent);
  return {int64_t(std::clamp(first + std::floor(double(p) * length), 0.0, most)),
          int64_t(std::clamp(first + std::ceil(double(p + 1) * length), 0.0, most))};
}

void reference_max_roi_pool(Reference& r) {
  const RefArray &x = r.in[0], &rois = r.in[1];
  const double scale = r.number("spatial_scale");
  std::vector<int64_t> images;
  for (int64_t k = 0; k < rois.dim(0); ++k) images.push_back(checked_image(r, rois.f[size_t(5 * k)]));
  for (Index at(r.out[0].shape); at.more(); ++at) {
    const double* region = rois.f.data() + 5 * at[0];
    const double box[4] = {region[1] * scale, region[2] * scale, region[3] * scale, region[4] * scale};
    double& y = r.out[0].f[size_t(at.flat())];
    if (!std::all_of(box, box + 4, [](double v) { return std::isfinite(v); })) {
      y = kNaN;
      continue;
    }
    const auto [top, bottom] = seen(box[1], box[3], at[2], r.out[0].dim(2), x.dim(2));
    const auto [left, right] = seen(box[0], box[2], at[3], r.out[0].dim(3), x.dim(3));
    const int64_t plane = images[size_t(at[0])] * x.dim(1) + at[1];
    bool any = false;
    for (int64_t v = top; v < bottom; ++v) {
      for (int64_t h = left; h < right; ++h) {
        const double value = x.f[size_t((plane * x.dim(2) + v) * x.dim(3) + h)];
        if (!any || value > y || std::isnan(value)) y = value;
        any = true;
      }
    }
  }
}

// ---- MaxUnpool

/// Extents of what was pooled, if nothing of it was left over.
template <typename Context>
Shape unpooled(const Context& c, const Shape& x) {
  const std::vector<int64_t> kernel = c.integers("kernel_shape");
  const std::vector<int64_t> strides = c.integers("strides", std::vector<int64_t>(kernel.size(), 1));
  const std::vector<int64_t> pads = c.integers("pads", std::vector<int64_t>(2 * kernel.size(), 0));
  Shape result = {x[0], x[1]};
  for (size_t a = 0; a < kernel.size(); ++a)
    result.push_back((x[a + 2] - Dim(1)) * Dim(strides[a]) + Dim(kernel[a] - pads[a] - pads[a + kernel.size()]));
  return result;
}

void infer_max_unpool(Infer& i) {
  const Shape &x = i.shape(0), &indices = i.shape(1);
  i.require(x.size() >= 3, [&] { return "input 'X' is " + describe(i, 0) + ": [N, C, spatial...] is wanted"; });
  bool same = x.size() == indices.size();
  for (size_t a = 0; same && a < x.size(); ++a) same = !x[a].known() || !indices[a].known() || x[a] == indices[a];
  i.require(same, [&] { return fmt::format("'I' is {}; allowed: the shape of 'X', {}", text(indices), text(x)); });
  const size_t axes = x.size() - 2;
  const auto check = [&](std::string_view name, size_t count, int64_t least) {
    const std::vector<int64_t> values = i.integers(name);
    i.require(values.size() == count || (values.empty() && name != "kernel_shape"),
              [&] { return fmt::format("{} has {} entries, {} are wanted", name, values.size(), count); });
    for (int64_t v : values)
      i.require(v >= least && v < (int64_t(1) << 31),
                [&] { return fmt::format("{} has the entry {}; allowed: {} and more", name, v, least); });
  };
  check("kernel_shape", axes, 1);
  check("strides", axes, 1);
  check("pads", 2 * axes, 0);
  const Shape whole = unpooled(i, x);
  for (const Dim& extent : whole)
    i.require(!extent.known() || extent.value() >= 0,
              [&] { return fmt::format("the pads leave nothing of {}: it would be {}", text(x), text(whole)); });
  if (!i.has(2)) return i.output(0, i.dtype(0), whole);
  const std::vector<Dim> wanted = i.need_values(2);
  i.require(wanted.size() == x.size(),
            [&] { return fmt::format("'output_shape' has {} entries for rank {}", wanted.size(), x.size()); });
  for (size_t a = 0; a < x.size(); ++a)
    i.require(!wanted[a].known() || !whole[a].known() || wanted[a].value() >= whole[a].value(), [&] {
      return fmt::format("output_shape has {} on axis {}; allowed: {} and more", wanted[a].text(), a, whole[a].text());
    });
  i.output(0, i.dtype(0), Shape(wanted.begin(), wanted.end()));
}

void reference_max_unpool(Reference& r) {
  const RefArray& x = r.in[0];
  const Extents whole = extents(unpooled(r, to_shape(x.shape)));
  const int64_t total = element_count(whole);
  const std::vector<int64_t> from = row_major_strides(whole), to = row_major_strides(r.out[0].shape);
  for (int64_t k = 0; k < x.elements(); ++k) {
    const int64_t index = r.in[1].i[size_t(k)];
    if (index < 0 || index >= total)
      fail(ErrorCode::kBadInput, "MaxUnpool: index {} is out of range for {}: allowed are 0 to {}", index,
           text(std::span<const int64_t>(whole)), total - 1);
    int64_t place = 0;
    for (size_t a = 0; a < whole.size(); ++a) place += index / from[a] % whole[a] * to[a];
    r.out[0].f[size_t(place)] = x.f[size_t(k)];
  }
}

/// Each element's gradient is read where it was put. Two of one place, as windows that overlap give, are equal; both
/// read it.
void gradient_max_unpool(Gradient& g) {
  V dy = g.gradient(), indices = g.input(1);
  const Shape whole = unpooled(g, g.shape(g.input(0)));
  if (g.has(2)) {
    if (!known(whole))
      fail(ErrorCode::kUnsupported, "the gradient of MaxUnpool is unsupported while extents are symbolic: bind them");
    std::vector<int64_t> axes;
    for (size_t a = 0; a < whole.size(); ++a) axes.push_back(int64_t(a));
    const std::vector<int64_t> starts(whole.size(), 0);
    dy = g.op("Slice",
              {dy, g.integers_constant(starts), g.integers_constant(extents(whole)), g.integers_constant(axes)});
  }
  g.input_gradient(0, g.op("Gather", {g.reshape(dy, {-1}), indices}));
}

}  // namespace

constinit const OpSchema kRoiAlign = {
    .name = "RoiAlign",
    .family = "pool",
    .kind = OpKind::kReduction,
    .doc =
        "regions [x1, y1, x2, y2] of X cut into bins; each the mean (or largest share) of linear interpolations at "
        "sampling_ratio^2 points. NaN for a region with a corner that is no number, or 2^30 elements away. Source: "
        "ONNX RoiAlign-16",
    .since = 16,
    .versions = {10, 16, 22},
    .inputs = {{"X", kFloats}, {"rois", kFloats, "X"}, {"batch_indices", kInt64}},
    .outputs = {{"Y"}},
    .attributes = {{"coordinate_transformation_mode", "half_pixel"},
                   {"mode", "avg"},
                   {"output_height", 1},
                   {"output_width", 1},
                   {"sampling_ratio", 0},
                   {"spatial_scale", 1.0}},
    .infer = infer_roi_align,
    .cost = cost_of_roi_align,
    .reference = reference_roi_align,
    .no_gradient = "not written yet: each sample's gradient scattered to the four elements around it",
    .samples = {"X=f32[2,3,9,11] rois=f32[5,4] batch_indices=i64[5] output_height=3 output_width=4",
                "X=f32[2,4,7,7] rois=f32[3,4] batch_indices=i64[3] output_height=2 output_width=2 sampling_ratio=2 "
                "spatial_scale=0.5",
                "X=f32[2,5,8,6] rois=f32[3,4] batch_indices=i64[3] output_height=7 output_width=7 sampling_ratio=3 "
                "coordinate_transformation_mode=output_half_pixel",
                "X=f32[2,2,5,5] rois=f32[4,4] batch_indices=i64[4] mode=max sampling_ratio=2 output_height=2",
                "X=f32[2,2,5,5] rois=f32[4,4] batch_indices=i64[4] mode=max output_width=3 "
                "coordinate_transformation_mode=output_half_pixel",
                "X=f32[1,2,5,5] rois=f32[0,4] batch_indices=i64[0]",
                "X=f16[2,2,5,5] rois=f16[2,4] batch_indices=i64[2] output_height=2 output_width=2"},
    .tolerance = Tolerance::reduction(),
};

constinit const OpSchema kMaxRoiPool = {
    .name = "MaxRoiPool",
    .family = "pool",
    .kind = OpKind::kReduction,
    .doc =
        "regions [image, x1, y1, x2, y2] of X, rounded to whole elements, cut into bins: the largest element of each, "
        "0 of an empty one. Source: ONNX MaxRoiPool-1",
    .since = 1,
    .versions = {1, 22},
    .inputs = {{"X", kFloats}, {"rois", kFloats, "X"}},
    .outputs = {{"Y"}},
    .attributes = {{"pooled_shape", AttributeType::kInts, kRequired}, {"spatial_scale", 1.0}},
    .infer = infer_max_roi_pool,
    .cost =
        [](const Problem& p) {
          return Cost{.flops = p.output().elements(), .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes()};
        },
    .reference = reference_max_roi_pool,
    .no_gradient = "RoiAlign has taken its place in models that are trained",
    .samples = {"X=f32[2,3,9,11] rois=f32[5,5] pooled_shape=2,3",
                "X=f32[3,4,7,7] rois=f32[3,5] pooled_shape=3,3 spatial_scale=0.5",
                "X=f32[1,2,5,5] rois=f32[0,5] pooled_shape=1,1", "X=f16[3,2,5,5] rois=f16[2,5] pooled_shape=6,2"},
};

constinit const OpSchema kMaxUnpool = {
    .name = "MaxUnpool",
    .family = "pool",
    .kind = kMovement,
    .doc =
        "each element of X at the place (flat, in what kernel_shape, strides and pads make of X) that I names, zeros "
        "elsewhere; a larger output_shape adds zeros at the ends. Source: ONNX MaxUnpool-11",
    .since = 11,
    .versions = {9, 11, 22},
    .inputs = {{"X", kFloats}, {"I", kInt64}, optional_input("output_shape", kInt64)},
    .outputs = {{"output"}},
    .attributes = {{"kernel_shape", AttributeType::kInts, kRequired},
                   {"pads", AttributeType::kInts},
                   {"strides", AttributeType::kInts}},
    .infer = infer_max_unpool,
    .cost = cost_of_copy,
    .reference = reference_max_unpool,
    .gradient = gradient_max_unpool,
    .samples = {"X=f32[2,3,4,3] I=i64[2,3,4,3] kernel_shape=2,2 strides=2,2",
                "X=f32[1,1,2,2] I=i64[1,1,2,2] output_shape=i64{1,1,5,5} kernel_shape=2,2 strides=2,2",
                "X=f32[1,2,5] I=i64[1,2,5] kernel_shape=3 strides=2 pads=1,0",
                "X=f64[0,2,3,3] I=i64[0,2,3,3] kernel_shape=2,2",
                "X=f16[1,1,2,2,2] I=i64[1,1,2,2,2] kernel_shape=1,2,2 strides=1,2,2"},
};

std::span<const OpSchema* const> pool_regions_ops() {
  static constexpr const OpSchema* kOps[] = {&kMaxRoiPool, &kMaxUnpool, &kRoiAlign};
  return kOps;
}

}  // namespace ridgeline
