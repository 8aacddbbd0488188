// A grid of positions made of an affine matrix, and an image sampled at positions. Source: the ONNX operator standard,
// GridSample-20 and AffineGrid-20; cubic weights: Keys, 1981, with a = -0.75.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "ops/families.h"
#include "ops/movement.h"

namespace ridgeline {

namespace {

enum class Padding { kZeros, kBorder, kReflection };

Padding padding_of(const Reference& r) {
  const std::string mode = r.string("padding_mode");
  return mode == "zeros" ? Padding::kZeros : mode == "border" ? Padding::kBorder : Padding::kReflection;
}

void infer_grid_sample(Infer& i) {
  const Shape &x = i.shape(0), &grid = i.shape(1);
  i.require(x.size() >= 3, [&] { return "'X' is " + describe(i, 0) + ": [N, C, spatial...] is wanted"; });
  i.require(grid.size() == x.size() && (!grid.back().known() || grid.back().is(int64_t(x.size()) - 2)), [&] {
    return fmt::format("'grid' is {}; allowed for 'X' {}: [N, spatial..., {}]", text(grid), text(x), x.size() - 2);
  });
  i.require(!x[0].known() || !grid[0].known() || x[0] == grid[0],
            [&] { return fmt::format("'X' has {} images, 'grid' {}", x[0].text(), grid[0].text()); });
  for (size_t a = 2; a < x.size(); ++a)
    i.require(!x[a].is(0), [&] { return fmt::format("'X' is {}: an empty plane has nothing to sample", text(x)); });
  const std::string mode = i.string("mode"), padding = i.string("padding_mode");
  i.require(mode == "linear" || mode == "nearest" || mode == "cubic",
            [&] { return fmt::format("mode = '{}'; allowed: linear, nearest, cubic", mode); });
  i.require(padding == "zeros" || padding == "border" || padding == "reflection",
            [&] { return fmt::format("padding_mode = '{}'; allowed: zeros, border, reflection", padding); });
  Shape result = {x[0], x[1]};
  result.insert(result.end(), grid.begin() + 1, grid.end() - 1);
  i.output(0, i.dtype(0), std::move(result));
}

/// One spatial axis of X: where positions count as inside, and what stands for those that are not.
struct Axis {
  int64_t extent;
  bool align_corners;
  Padding padding;
  double low() const { return align_corners ? 0 : -0.5; }
  double high() const { return double(extent) - (align_corners ? 1 : 0.5); }

  /// Thrown back at the ends as often as it takes; an axis of no length is its one end.
  double reflected(double x) const {
    const double range = high() - low();
    if (!(range > 0)) return low();
    if (x >= low() && x <= high()) return x;
    const bool below = x < low();
    const double distance = below ? low() - x : x - high(), turns = std::floor(distance / range),
                 rest = distance - turns * range;
    return (std::fmod(turns, 2) == 0) == below ? low() + rest : high() - rest;
  }

  /// Position in elements of a coordinate of the grid. NaN counts as the first element, or as outside.
  double position(double coordinate, bool whole) const {
    const double n = double(extent);
    double x = align_corners ? (coordinate + 1) / 2 * (n - 1) : ((coordinate + 1) * n - 1) / 2;
    if (whole) x = std::nearbyint(x);
    if (padding == Padding::kZeros) return x > -n - 4 && x < 2 * n + 4 ? x : -n - 4;
    if (x < low() || x > high()) x = padding == Padding::kBorder ? std::clamp(x, 0.0, n - 1) : reflected(x);
    return std::isfinite(x) ? x : 0;
  }

  /// The element that stands for number k; -1: zero.
  int64_t element(int64_t k) const {
    if (k >= 0 && k < extent) return k;
    if (padding == Padding::kZeros) return -1;
    if (padding == Padding::kReflection) k = int64_t(reflected(double(k)));
    return std::clamp<int64_t>(k, 0, extent - 1);
  }
};

struct Tap {
  int64_t element;
  double weight;
};

std::vector<Tap> taps_of(const Axis& axis, double coordinate, std::string_view mode) {
  const double x = axis.position(coordinate, mode == "nearest"), below = std::floor(x), t = x - below;
  const int64_t first = int64_t(below);
  if (mode == "nearest") return {{axis.element(int64_t(x)), 1}};
  if (mode == "linear") return {{axis.element(first), 1 - t}, {axis.element(first + 1), t}};
  constexpr double kA = -0.75;
  const auto near = [&](double d) { return ((kA + 2) * d - (kA + 3)) * d * d + 1; };
  const auto far = [&](double d) { return ((kA * d - 5 * kA) * d + 8 * kA) * d - 4 * kA; };
  return {{axis.element(first - 1), far(t + 1)},
          {axis.element(first), near(t)},
          {axis.element(first + 1), near(1 - t)},
          {axis.element(first + 2), far(2 - t)}};
}

double weighted(const RefArray& x, int64_t base, const std::vector<std::vector<Tap>>& taps, size_t axis) {
  if (axis == taps.size()) return x.number(base);
  double sum = 0;
  for (const Tap& tap : taps[axis])
    if (tap.element >= 0) sum += tap.weight * weighted(x, base * x.dim(int(axis) + 2) + tap.element, taps, axis + 1);
  return sum;
}

/// Sums of integers are truncated, and end where their type does.
void store(RefArray& y, int64_t k, double value) {
  if (y.is_float()) return y.set(k, value);
  if (y.dtype == DType::kBool) return y.set(k, value != 0);
  const DTypeInfo& type = info(y.dtype);
  const double most = std::ldexp(1.0, type.bits - (type.is_signed ? 1 : 0)), least = type.is_signed ? -most : 0;
  if (value >= most)
    y.i[size_t(k)] = int64_t(~uint64_t(0) >> (64 - type.bits + (type.is_signed ? 1 : 0)));
  else if (value >= 0x1p63)
    y.i[size_t(k)] = int64_t(uint64_t(value));
  else
    y.i[size_t(k)] = int64_t(std::max(value, least));
}

void reference_grid_sample(Reference& r) {
  const RefArray &x = r.in[0], &grid = r.in[1];
  const std::string mode = r.string("mode");
  std::vector<Axis> axes;
  for (int a = 2; a < x.rank(); ++a) axes.push_back({x.dim(a), r.flag("align_corners"), padding_of(r)});
  const int64_t channels = x.dim(1), rank = int64_t(axes.size());
  int64_t places = 1;
  for (int a = 1; a + 1 < grid.rank(); ++a) places *= grid.dim(a);
  r.parallel_for(x.dim(0) * places, [&](int64_t begin, int64_t end) {
    std::vector<std::vector<Tap>> taps(axes.size());
    for (int64_t k = begin; k < end; ++k) {
      // The coordinates of a position stand in the opposite order of the axes.
      for (int64_t a = 0; a < rank; ++a)
        taps[size_t(a)] = taps_of(axes[size_t(a)], grid.number((k + 1) * rank - 1 - a), mode);
      for (int64_t c = 0; c < channels; ++c) {
        const int64_t plane = k / places * channels + c, to = plane * places + k % places;
        if (mode == "nearest") {  // an element as it is, whatever its type
          int64_t from = plane;
          for (int64_t a = 0; a < rank && from >= 0; ++a) {
            const int64_t element = taps[size_t(a)][0].element;
            from = element < 0 ? -1 : from * axes[size_t(a)].extent + element;
          }
          if (from >= 0) r.out[0].copy(to, x, from);
        } else {
          store(r.out[0], to, weighted(x, plane, taps, 0));
        }
      }
    }
  });
}

Cost cost_of_grid_sample(const Problem& p) {
  const std::string mode = p.string("mode");
  const int64_t width = mode == "nearest" ? 0 : mode == "linear" ? 2 : 4;
  int64_t taps = 1;
  for (int a = 2; a < p.input(0).layout.rank(); ++a) taps *= width;
  return {.flops = 2 * taps * p.output().elements() + 4 * p.input(1).elements(),
          .read_bytes = p.read_bytes(),
          .write_bytes = p.write_bytes()};
}

// ---- AffineGrid

void infer_affine_grid(Infer& i) {
  const std::vector<Dim> size = i.need_values(1);
  const int64_t axes = int64_t(size.size()) - 2;
  i.require(axes == 2 || axes == 3, [&] {
    return fmt::format("'size' has {} entries; allowed: 4, [N, C, H, W], or 5, [N, C, D, H, W]", size.size());
  });
  const Shape& theta = i.shape(0);
  i.require(
      theta.size() == 3 && (!theta[1].known() || theta[1].is(axes)) && (!theta[2].known() || theta[2].is(axes + 1)) &&
          (!theta[0].known() || !size[0].known() || theta[0] == size[0]),
      [&] { return fmt::format("'theta' is {}; allowed: [{},{},{}]", text(theta), size[0].text(), axes, axes + 1); });
  for (const Dim& extent : size)
    i.require(!extent.known() || extent.value() >= 0,
              [&] { return fmt::format("'size' has the entry {}; allowed: 0 and more", extent.text()); });
  Shape result = {theta[0]};
  result.insert(result.end(), size.begin() + 2, size.end());
  result.push_back(axes);
  i.output(0, i.dtype(0), std::move(result));
}

/// Each of the matrix's columns times the positions along one axis, which are few numbers: -1 to 1, at the centres of
/// the outermost elements (align_corners; one element alone is at -1) or at their outer edges.
void decompose_affine_grid(Builder& b) {
  const V theta = b.input(0);
  const std::vector<int64_t> size = b.values(b.input(1));
  if (size.size() != 4 && size.size() != 5)
    fail(ErrorCode::kUnsupported, "unsupported: the meaning of AffineGrid while its size is symbolic: bind it first");
  const int64_t axes = int64_t(size.size()) - 2;
  std::vector<int64_t> column_shape(size_t(axes) + 2, 1);
  column_shape.front() = 0, column_shape.back() = axes;
  Attributes along;
  along.set("axis", int64_t(2));
  const auto column = [&](int64_t k) {
    return b.reshape(b.op("Gather", {theta, b.reshape(b.integers_constant({k}), {})}, along), column_shape);
  };
  std::optional<V> sum;
  for (int64_t k = 0; k < axes; ++k) {  // x, the last axis, first
    const int64_t axis = axes - 1 - k, extent = size[size_t(axis) + 2];
    Extents shape(size_t(axes) + 2, 1);
    shape[size_t(axis) + 1] = extent;
    Tensor positions(b.dtype(theta), shape);
    const bool corners = b.flag("align_corners");
    const double step = !corners ? 2 / double(std::max<int64_t>(1, extent)) : extent > 1 ? 2 / double(extent - 1) : 0;
    for (int64_t at = 0; at < extent; ++at)
      store_f64(positions.dtype(), positions.data(), at, -1 + step * (double(at) + (corners ? 0 : 0.5)));
    const V term = column(k) * V{&b, b.graph().add_constant({}, positions)};
    sum = sum ? *sum + term : term;
  }
  b.result(*sum + column(axes));
}

}  // namespace

constinit const OpSchema kGridSample = {
    .name = "GridSample",
    .family = "movement",
    .kind = kMovement,
    .doc =
        "X sampled at the positions in grid (-1 to 1, x first): the nearest element, or linear or cubic interpolation; "
        "outside: zeros, the border, or a reflection. Sums of integers are truncated. Source: ONNX GridSample-20",
    .since = 20,
    .versions = {16, 20, 22},
    .inputs = {{"X"}, {"grid", kFloats}},
    .outputs = {{"Y"}},
    .attributes = {{"align_corners", 0}, {"mode", "linear"}, {"padding_mode", "zeros"}},
    .infer = infer_grid_sample,
    .cost = cost_of_grid_sample,
    .reference = reference_grid_sample,
    .no_gradient = "not written yet: each sample's gradient scattered to the elements around it, and that of the grid",
    .samples = {"X=f32[2,3,5,7] grid=f32[2,4,6,2]",
                "X=f32[2,3,5,7] grid=f32[2,4,6,2] align_corners=1 padding_mode=border",
                "X=f32[1,2,9,5] grid=f32[1,7,33,2] padding_mode=reflection",
                "X=f32[1,2,6,5] grid=f32[1,3,4,2] mode=nearest align_corners=1 padding_mode=reflection",
                "X=f32[2,2,6,5] grid=f32[2,3,4,2] mode=nearest", "X=f32[1,2,6,5] grid=f32[1,3,4,2] mode=cubic",
                "X=f32[1,2,6,5] grid=f32[1,3,4,2] mode=cubic padding_mode=border align_corners=1",
                "X=f32[1,2,1,1] grid=f32[1,3,3,2] mode=cubic padding_mode=reflection align_corners=1",
                "X=f32[1,2,3,4,5] grid=f32[1,2,3,4,3] padding_mode=border",
                "X=f32[1,2,3,4,5] grid=f32[1,2,3,4,3] mode=nearest align_corners=1",
                "X=f32[2,3,9] grid=f32[2,5,1] padding_mode=reflection", "X=f16[1,2,4,4] grid=f32[1,3,3,2]",
                "X=u8[1,2,4,4] grid=f32[1,3,3,2] mode=cubic", "X=f32[1,2,4,4] grid=f32[1,0,3,2]"},
    .tolerance = Tolerance::contraction(),
};

constinit const OpSchema kAffineGrid = {
    .name = "AffineGrid",
    .family = "movement",
    .kind = kMovement,
    .doc =
        "the positions from -1 to 1 of an image of the given size, each multiplied by the affine matrix of its batch "
        "item: a grid for GridSample. Source: ONNX AffineGrid-20",
    .since = 20,
    .versions = {20},
    .inputs = {{"theta", kFloats}, {"size", kInt64}},
    .outputs = {{"grid"}},
    .attributes = {{"align_corners", 0}},
    .infer = infer_affine_grid,
    .cost =
        [](const Problem& p) {
          const int64_t axes = p.output().shape().back();
          return Cost{
              .flops = 2 * axes * p.output().elements(), .read_bytes = p.read_bytes(), .write_bytes = p.write_bytes()};
        },
    .decompose = {decompose_affine_grid},
    .samples = {"theta=f32[2,2,3] size=i64{2,3,5,7}", "theta=f32[2,3,4] size=i64{2,1,4,5,6} align_corners=1",
                "theta=f32[1,2,3] size=i64{1,3,1,1} align_corners=1", "theta=f64[1,2,3] size=i64{1,1,0,4}",
                "theta=f16[1,2,3] size=i64{1,1,3,3}"},
    .tolerance = Tolerance::contraction(),
};

std::span<const OpSchema* const> movement_sample_ops() {
  static constexpr const OpSchema* kOps[] = {&kAffineGrid, &kGridSample};
  return kOps;
}

}  // namespace ridgeline
