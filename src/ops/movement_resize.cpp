// Resize: interpolation along any axes. Source: the ONNX operator standard, Resize-19, whose formulas are followed in
// double.
#include <algorithm>
#include <cmath>

#include "ops/movement.h"

namespace ridgeline {

namespace {

bool given(const Infer& i, int input) {
  return i.has(input) && !product(i.shape(input)).is(0);
}  // exporters write empty ones

std::vector<int64_t> axes_or_all(std::vector<int64_t> axes, int rank) {
  if (!axes.empty()) return axes;
  for (int a = 0; a < rank; ++a) axes.push_back(a);
  return axes;
}

bool one_of(std::string_view value, std::initializer_list<std::string_view> allowed) {
  return std::find(allowed.begin(), allowed.end(), value) != allowed.end();
}

void check_choice(const Infer& i, std::string_view attribute, std::initializer_list<std::string_view> allowed) {
  const std::string value = i.string(attribute);
  i.require(one_of(value, allowed), fmt::format("{} = '{}'; allowed: {}", attribute, value, fmt::join(allowed, ", ")));
}

// Scales come from files: what no 64 bits hold becomes an extent that no shape may have.
int64_t whole(double x) { return int64_t(std::clamp(x, -0x1p62, 0x1p62)); }

// floor(extent * scale); symbolic extents take whole factors and divisors only.
Dim scaled(const Dim& extent, double scale) {
  if (extent.known()) return whole(std::floor(double(extent.value()) * scale));
  if (scale == std::floor(scale)) return extent * Dim(whole(scale));
  const double divisor = std::round(1 / scale);
  if (float(1 / divisor) == float(scale)) return floor_div(extent, Dim(whole(divisor)));
  throw NeedsValues(
      0, fmt::format("Resize: extent {} scaled by {} is not known before it is bound", extent.text(), scale));
}

// The common factor of keep_aspect_ratio_policy, or nothing if the policy is to stretch.
std::optional<double> common_scale(std::string_view policy, const std::vector<double>& ratios) {
  if (policy == "not_larger") return *std::min_element(ratios.begin(), ratios.end());
  if (policy == "not_smaller") return *std::max_element(ratios.begin(), ratios.end());
  return std::nullopt;
}

int64_t round_half_up(double x) { return whole(std::floor(x + 0.5)); }

void infer_resize(Infer& i) {
  Shape result = i.shape(0);
  const int rank = int(result.size());
  const std::vector<int64_t> axes = axes_or_all(i.integers("axes"), rank);
  i.axes(axes, rank);
  check_choice(i, "mode", {"nearest", "linear", "cubic"});
  check_choice(i, "coordinate_transformation_mode",
               {"half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
                "tf_crop_and_resize", "tf_half_pixel_for_nn"});
  check_choice(i, "nearest_mode", {"round_prefer_floor", "round_prefer_ceil", "floor", "ceil"});
  check_choice(i, "keep_aspect_ratio_policy", {"stretch", "not_larger", "not_smaller"});
  i.require(given(i, 2) != given(i, 3), "allowed: 'scales' or 'sizes', one of them");
  if (given(i, 2)) {
    const Tensor* scales = i.constant(2);
    if (!scales) throw NeedsValues(2, "Resize: 'scales' is not a constant");
    i.require(scales->elements() == int64_t(axes.size()),
              fmt::format("{} scales for {} axes", scales->elements(), axes.size()));
    for (size_t k = 0; k < axes.size(); ++k) {
      const double scale = scales->f64(int64_t(k));
      i.require(scale > 0, fmt::format("scale {}; allowed: above 0", scale));
      Dim& extent = result[size_t(i.axis(axes[k], rank))];
      extent = scaled(extent, scale);
    }
    return i.output(0, i.dtype(0), std::move(result));
  }
  const std::vector<Dim> sizes = i.need_values(3);
  i.require(sizes.size() == axes.size(), fmt::format("{} sizes for {} axes", sizes.size(), axes.size()));
  std::vector<double> ratios;
  for (size_t k = 0; k < axes.size(); ++k) {
    Dim& extent = result[size_t(i.axis(axes[k], rank))];
    if (extent.known() && sizes[k].known()) ratios.push_back(double(sizes[k].value()) / double(extent.value()));
    i.require(!extent.is(0) || sizes[k].is(0), "an empty axis cannot be resized");
    if (i.string("keep_aspect_ratio_policy") == "stretch") extent = sizes[k];
  }
  if (const auto common = ratios.empty() ? std::nullopt : common_scale(i.string("keep_aspect_ratio_policy"), ratios)) {
    if (ratios.size() != axes.size()) throw NeedsValues(0, "Resize: keep_aspect_ratio_policy needs known extents");
    for (int64_t axis : axes) {
      Dim& extent = result[size_t(i.axis(axis, rank))];
      extent = round_half_up(double(extent.value()) * *common);
    }
  }
  i.output(0, i.dtype(0), std::move(result));
}

struct Tap {
  int64_t index;
  double weight;
};
struct AxisMap {
  std::vector<std::vector<Tap>> taps;  // of each output position
  std::vector<bool> outside;           // tf_crop_and_resize: the position takes extrapolation_value
};

struct AxisGeometry {
  int64_t in, out;
  double scale;
  double roi_begin = 0, roi_end = 1;
};

double source_position(std::string_view mode, int64_t x, const AxisGeometry& g) {
  const double in = double(g.in), out = g.scale * in;
  if (mode == "asymmetric") return double(x) / g.scale;
  if (mode == "align_corners") return out == 1 ? 0 : double(x) * (in - 1) / (out - 1);
  if (mode == "pytorch_half_pixel") return out == 1 ? -0.5 : (double(x) + 0.5) / g.scale - 0.5;
  if (mode == "half_pixel_symmetric") return in / 2 * (1 - double(g.out) / out) + (double(x) + 0.5) / g.scale - 0.5;
  if (mode == "tf_half_pixel_for_nn") return (double(x) + 0.5) / g.scale;
  if (mode == "tf_crop_and_resize") {
    const double width = (g.roi_end - g.roi_begin) * (in - 1);
    return g.roi_begin * (in - 1) + (out == 1 ? width / 2 : double(x) * width / (out - 1));
  }
  return (double(x) + 0.5) / g.scale - 0.5;  // half_pixel
}

double cubic_weight(double x, double a) {
  x = std::fabs(x);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a;
  return 0;
}

int64_t nearest(std::string_view mode, double position) {
  const double below = std::floor(position), fraction = position - below;
  if (mode == "floor") return int64_t(below);
  if (mode == "ceil") return int64_t(std::ceil(position));
  const bool up = mode == "round_prefer_ceil" ? fraction >= 0.5 : fraction > 0.5;
  return int64_t(below) + (up ? 1 : 0);
}

std::vector<Tap> interpolate(const Reference& r, double position, const AxisGeometry& g) {
  // Regions come from files as well; beyond this all taps are at the edge (NaN: at the lower one).
  position = position > -0x1p40 ? std::min(position, 0x1p40) : -0x1p40;
  const std::string mode = r.string("mode");
  std::vector<Tap> taps;
  if (mode == "nearest") {
    taps.push_back({nearest(r.string("nearest_mode"), position), 1});
  } else {
    const bool linear = mode == "linear";
    // Antialiasing widens the filter by the factor of the reduction. A whole position counts as the end of the interval
    // before it (fraction 1), so that the footprint is the standard's.
    const double shrink = r.flag("antialias") ? std::min(g.scale, 1.0) : 1;
    const double whole = position == std::floor(position) ? position - 1 : std::floor(position),
                 fraction = position - whole;
    const int64_t first = int64_t(std::floor((linear ? -1 : -2) / shrink)) + 1, last = 1 - first;
    for (int64_t k = first; k <= last; ++k) {
      const double distance = (double(k) - fraction) * shrink;
      taps.push_back({int64_t(whole) + k, linear ? std::max(0.0, 1 - std::fabs(distance))
                                                 : cubic_weight(distance, r.number("cubic_coeff_a"))});
    }
  }
  const bool exclude = r.flag("exclude_outside") && mode == "cubic";
  double sum = 0;
  for (Tap& tap : taps) {
    if (exclude && (tap.index < 0 || tap.index >= g.in)) tap.weight = 0;
    tap.index = std::clamp<int64_t>(tap.index, 0, g.in - 1);
    sum += tap.weight;
  }
  if (exclude || r.flag("antialias")) {
    for (Tap& tap : taps) tap.weight /= sum;
  }
  return taps;
}

AxisMap map_axis(const Reference& r, const AxisGeometry& g) {
  AxisMap map;
  const std::string mode = r.string("coordinate_transformation_mode");
  for (int64_t x = 0; x < g.out; ++x) {
    const double position =
        g.scale == 1 && g.in == g.out && mode != "tf_crop_and_resize" ? double(x) : source_position(mode, x, g);
    map.outside.push_back(mode == "tf_crop_and_resize" && (position < 0 || position > double(g.in - 1)));
    map.taps.push_back(interpolate(r, position, g));
  }
  return map;
}

std::vector<AxisMap> map_axes(const Reference& r) {
  const RefArray &x = r.in[0], &y = r.out[0];
  const std::vector<int> axes = positive_axes(axes_or_all(r.integers("axes"), x.rank()), x.rank());
  std::vector<AxisGeometry> geometry;
  for (int a = 0; a < x.rank(); ++a) geometry.push_back({x.dim(a), y.dim(a), 1});
  std::vector<double> ratios;
  for (size_t k = 0; k < axes.size(); ++k) {
    AxisGeometry& g = geometry[size_t(axes[k])];
    const bool by_scale = r.has(2) && r.in[2].elements() > 0;
    g.scale = by_scale ? r.in[2].number(int64_t(k)) : double(r.in[3].integer(int64_t(k))) / double(g.in);
    if (!by_scale) ratios.push_back(g.scale);
    if (r.has(1) && r.in[1].elements() > 0) {
      g.roi_begin = r.in[1].number(int64_t(k));
      g.roi_end = r.in[1].number(int64_t(k + axes.size()));
    }
  }
  if (const auto common = ratios.empty() ? std::nullopt : common_scale(r.string("keep_aspect_ratio_policy"), ratios)) {
    for (int axis : axes) geometry[size_t(axis)].scale = *common;
  }
  std::vector<AxisMap> maps;
  for (const AxisGeometry& g : geometry) maps.push_back(map_axis(r, g));
  return maps;
}

// Sum over the taps of axes `axis` to the last.
double weighted(const RefArray& x, const std::vector<AxisMap>& maps, const std::vector<int64_t>& strides,
                const Extents& at, size_t axis, int64_t base) {
  if (axis == maps.size()) return x.number(base);
  double sum = 0;
  for (const Tap& tap : maps[axis].taps[size_t(at[axis])]) {
    if (tap.weight != 0) sum += tap.weight * weighted(x, maps, strides, at, axis + 1, base + tap.index * strides[axis]);
  }
  return sum;
}

void reference_resize(Reference& r) {
  const std::vector<AxisMap> maps = map_axes(r);
  const std::vector<int64_t> strides = row_major_strides(r.in[0].shape);
  for (Index at(r.out[0].shape); at.more(); ++at) {
    bool outside = false;
    for (size_t a = 0; a < maps.size(); ++a) outside = outside || maps[a].outside[size_t(at[int(a)])];
    r.out[0].set(at.flat(),
                 outside ? r.number("extrapolation_value") : weighted(r.in[0], maps, strides, at.at(), 0, 0));
  }
}

}  // namespace

constinit const OpSchema kResize = {
    .name = "Resize",
    .family = "movement",
    .kind = kMovement,
    .doc =
        "X sampled at other positions along axes: the nearest element, or linear or cubic interpolation (Keys, 1981)",
    .since = 11,
    .versions = {10, 11, 13, 18, 19},
    .inputs = {{"X", kNumbers},
               optional_input("roi", kFloats),
               optional_input("scales", kFloats),
               optional_input("sizes", kInt64)},
    .outputs = {{"Y"}},
    .attributes = {{"antialias", 0},
                   {"axes", AttributeType::kInts},
                   {"coordinate_transformation_mode", "half_pixel"},
                   {"cubic_coeff_a", -0.75},
                   {"exclude_outside", 0},
                   {"extrapolation_value", 0.0},
                   {"keep_aspect_ratio_policy", "stretch"},
                   {"mode", "nearest"},
                   {"nearest_mode", "round_prefer_floor"}},
    .infer = infer_resize,
    .cost =
        [](const Problem& p) {
          const std::string mode = p.string("mode");
          const int64_t taps = mode == "nearest" ? 0 : mode == "linear" ? 4 : 16;  // of two resized axes
          return Cost{
              .flops = 2 * taps * p.output().elements(), .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes()};
        },
    .reference = reference_resize,
    .no_gradient = "not written yet: the transposed interpolation",
    .samples = {"X=f32[2,3,5,7] sizes=i64{2,3,10,14}", "X=f32[1,2,5,4] sizes=i64{7,9} axes=-2,-1 mode=linear",
                "X=f32[1,1,6,6] sizes=i64{4,3} axes=2,3 mode=cubic",
                "X=f32[2,9] sizes=i64{2,4} mode=linear coordinate_transformation_mode=align_corners",
                "X=f16[0,3] sizes=i64{0,6} coordinate_transformation_mode=asymmetric nearest_mode=floor"},
    .tolerance = Tolerance::contraction(),
};

std::span<const OpSchema* const> movement_resize_ops() {
  static constexpr const OpSchema* kOps[] = {&kResize};
  return kOps;
}

}  // namespace ridgeline
