// cpu.resize: nearest and linear interpolation in f32, any axes. The taps of each output position of each axis are
// computed once; then rows are blended, or channels where they are contiguous.
#include <algorithm>
#include <cmath>

#include "ir/reference.h"
#include "kernels/cpu/elementwise/epilogue_pass.h"
#include "kernels/cpu/movement/move_kernels.h"

namespace ridgeline::cpu {

namespace {

/// Output position o of an axis is low_weight * in[low] + (1 - low_weight) * in[high]; offsets already times the
/// stride.
struct AxisTaps {
  std::vector<int64_t> low, high;
  std::vector<float> weight;  // of low
  bool plain = true;          // every weight is 1
};

struct State {
  Extents shape;               // of the output, in the order of the loops: the output's innermost axis last
  std::vector<AxisTaps> taps;  // by loop
  Extents strides;             // of the output
  std::vector<int> blended;    // loops that are not plain, the last one apart
  EpiloguePass epilogue;
};

int64_t positive(int64_t axis, int rank) { return axis < 0 ? axis + rank : axis; }

/// The scale of each axis as the standard has it: given, or the ratio of the sizes.
std::vector<double> scales_of(const Problem& p) {
  const int rank = p.input(0).layout.rank();
  std::vector<double> scale(size_t(rank), 1);
  std::vector<int64_t> axes = p.integers("axes");
  if (axes.empty())
    for (int a = 0; a < rank; ++a) axes.push_back(a);
  const bool given = p.has(2) && p.input(2).elements() > 0;
  for (size_t k = 0; k < axes.size(); ++k) {
    const size_t a = size_t(positive(axes[k], rank));
    scale[a] = given ? p.input(2).constant.f64(int64_t(k))
                     : double(p.input(3).constant.i64(int64_t(k))) / double(p.input(0).shape()[a]);
  }
  return scale;
}

double source_position(std::string_view mode, int64_t x, int64_t in_extent, int64_t out_extent, double scale) {
  const double in = double(in_extent), out = scale * in;
  if (mode == "asymmetric") return double(x) / scale;
  if (mode == "align_corners") return out == 1 ? 0 : double(x) * (in - 1) / (out - 1);
  if (mode == "pytorch_half_pixel") return out == 1 ? -0.5 : (double(x) + 0.5) / scale - 0.5;
  if (mode == "half_pixel_symmetric") return in / 2 * (1 - double(out_extent) / out) + (double(x) + 0.5) / scale - 0.5;
  if (mode == "tf_half_pixel_for_nn") return (double(x) + 0.5) / scale;
  return (double(x) + 0.5) / scale - 0.5;
}

int64_t nearest(std::string_view mode, double position) {
  const double below = std::floor(position), fraction = position - below;
  if (mode == "floor") return int64_t(below);
  if (mode == "ceil") return int64_t(std::ceil(position));
  return int64_t(below) + (mode == "round_prefer_ceil" ? fraction >= 0.5 : fraction > 0.5);
}

AxisTaps taps_of(const Problem& p, int64_t in, int64_t out, double scale, int64_t stride) {
  AxisTaps taps;
  const std::string transform = p.string("coordinate_transformation_mode"), rounding = p.string("nearest_mode");
  const bool linear = p.string("mode") == "linear", same = scale == 1 && in == out;
  for (int64_t x = 0; x < out; ++x) {
    const double position = same ? double(x) : source_position(transform, x, in, out, scale);
    int64_t low = linear ? int64_t(std::floor(position)) : nearest(rounding, position);
    const double weight = linear ? 1 - (position - double(low)) : 1;
    const int64_t high = std::clamp<int64_t>(low + 1, 0, in - 1);
    low = std::clamp<int64_t>(low, 0, in - 1);
    taps.low.push_back(low * stride);
    taps.high.push_back((weight == 1 ? low : high) * stride);
    taps.weight.push_back(float(weight));
    taps.plain = taps.plain && (weight == 1 || low == high);
  }
  if (taps.plain) std::fill(taps.weight.begin(), taps.weight.end(), 1.0f);
  return taps;
}

Support supports(const Problem& p) {
  const std::string mode = p.string("mode");
  if (const int bits = info(p.input(0).dtype).bits; p.input(0).dtype != DType::kF32) {
    if (mode != "nearest" || (bits != 8 && bits != 16))
      return no("{}: this kernel takes f32, and the nearest element of one or two bytes", name(p.input(0).dtype));
    if (p.has_epilogue()) return no("an epilogue after {}", name(p.input(0).dtype));
  }
  if (mode == "cubic") return no("cubic interpolation");
  if (mode == "linear" && p.flag("antialias")) return no("antialiasing");
  if (p.string("coordinate_transformation_mode") == "tf_crop_and_resize") return no("tf_crop_and_resize");
  if (p.string("keep_aspect_ratio_policy") != "stretch")
    return no("keep_aspect_ratio_policy = {}", p.string("keep_aspect_ratio_policy"));
  for (int k : {2, 3})
    if (p.has(k) && !p.input(k).constant) return no("'{}' is not known before the run", p.op->inputs[k].name);
  if (p.input(0).elements() == 0) return no("an empty input");
  int resized = 0;
  for (size_t a = 0; a < p.output().shape().size(); ++a) resized += p.output().shape()[a] != p.input(0).shape()[a];
  if (mode == "linear" && resized > 3) return no("{} axes are interpolated, at most 3", resized);
  return EpiloguePass::check(p);
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  // Channels last blends whole vectors; planes look up each element.
  const bool last = p.output().layout.rank() > 1 && p.output().layout.strides.back() != 1;
  const double each = (p.string("mode") == "linear" ? 4 : 1) * (last ? 0.1 : 0.5);
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads),
                  each * double(p.output().elements()) / p.threads) +
         300;
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  const Layout &x = p.input(0).layout, &y = p.output().layout;
  const std::vector<double> scale = scales_of(p);
  std::vector<size_t> order;
  for (size_t a = 0; a < y.shape.size(); ++a) order.push_back(a);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return (y.shape[a] == 1 ? INT64_MAX : y.strides[a]) > (y.shape[b] == 1 ? INT64_MAX : y.strides[b]);
  });
  State s{.epilogue = EpiloguePass(p)};
  for (size_t a : order) {
    s.shape.push_back(y.shape[a]);
    s.strides.push_back(y.strides[a]);
    s.taps.push_back(taps_of(p, x.shape[a], y.shape[a], scale[a], x.strides[a]));
  }
  for (int k = 0; k + 1 < int(order.size()); ++k)
    if (!s.taps[size_t(k)].plain) s.blended.push_back(k);
  if (order.empty()) s.shape = {1}, s.strides = {1}, s.taps = {taps_of(p, 1, 1, 1, 1)};
  return std::make_shared<State>(std::move(s));
}

/// y = sum of the corners' rows: each corner has an offset into x and a weight; the innermost axis has its own taps.
void blend_row(const float* x, const int64_t* offsets, const float* weights, int corners, const AxisTaps& inner,
               int64_t count, int64_t in_step, float* y, int64_t step) {
  const bool contiguous = inner.plain && step == 1 && in_step == 1 && count > 0 &&
                          inner.low[size_t(count - 1)] == inner.low[0] + count - 1 && inner.low[0] == 0;
  if (contiguous && corners == 1) {
    std::copy_n(x + offsets[0], count, y);
    return;
  }
  for (int c = 0; c < corners; ++c) {
    const float* from = x + offsets[c];
    const float w = weights[c];
    if (contiguous) {
      if (c == 0)
        for (int64_t j = 0; j < count; ++j) y[j] = w * from[j];
      else
        for (int64_t j = 0; j < count; ++j) y[j] += w * from[j];
      continue;
    }
    for (int64_t j = 0; j < count; ++j) {
      const size_t at = size_t(j);
      const float v = inner.plain
                          ? from[inner.low[at]]
                          : from[inner.low[at]] * inner.weight[at] + from[inner.high[at]] * (1 - inner.weight[at]);
      const float value = corners == 1 ? v : w * v;
      y[j * step] = c == 0 ? value : y[j * step] + value;
    }
  }
}

/// The nearest elements of a row, of any type.
template <typename T>
void move_row(const T* x, const AxisTaps& inner, int64_t count, int64_t in_step, T* y, int64_t step) {
  if (step == 1 && in_step == 1 && inner.low[size_t(count - 1)] == count - 1 && inner.low[0] == 0) {
    std::copy_n(x, count, y);
    return;
  }
  for (int64_t j = 0; j < count; ++j) y[j * step] = x[inner.low[size_t(j)]];
}

template <typename T>
void run_as(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const T* x = static_cast<const T*>(buffers.inputs[0]);
  T* y = static_cast<T*>(buffers.outputs[0]);
  const int last = int(s.shape.size()) - 1;
  const int64_t count = s.shape[size_t(last)];
  int64_t rows = 1;
  for (int a = 0; a < last; ++a) rows *= s.shape[size_t(a)];
  if (rows * count == 0) return;
  const AxisTaps& inner = s.taps[size_t(last)];
  const int64_t in_step = count > 1 ? inner.low[1] - inner.low[0] : 1;
  parallel(pool, rows, std::max<int64_t>(1, 8192 / count), [&](int64_t begin, int64_t end, int) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t offsets[8] = {0}, to = 0, rest = row;
      float weights[8] = {1};
      int corners = 1;
      for (int a = last - 1; a >= 0; --a) {
        const size_t k = size_t(a), at = size_t(rest % s.shape[k]);
        rest /= s.shape[k];
        to += int64_t(at) * s.strides[k];
        const AxisTaps& taps = s.taps[k];
        const float w = taps.weight[at];
        if (taps.plain || w == 1) {
          for (int c = 0; c < corners; ++c) offsets[c] += taps.low[at];
          continue;
        }
        for (int c = 0; c < corners; ++c) {  // each corner becomes two
          offsets[corners + c] = offsets[c] + taps.high[at];
          weights[corners + c] = weights[c] * (1 - w);
          offsets[c] += taps.low[at];
          weights[c] *= w;
        }
        corners *= 2;
      }
      if constexpr (std::is_same_v<T, float>)
        blend_row(x, offsets, weights, corners, inner, count, in_step, y + to, s.strides[size_t(last)]);
      else
        move_row(x + offsets[0], inner, count, in_step, y + to, s.strides[size_t(last)]);
    }
  });
  s.epilogue.run(buffers, pool);
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  switch (info(call.problem.input(0).dtype).bits) {
    case 8:
      return run_as<uint8_t>(call, buffers, pool);
    case 16:
      return run_as<uint16_t>(call, buffers, pool);
    default:
      return run_as<float>(call, buffers, pool);
  }
}

}  // namespace

constinit const Kernel kResizeKernel = {
    .name = "cpu.resize", .op = "Resize", .supports = supports, .estimate = estimate, .prepare = prepare, .run = run};

}  // namespace ridgeline::cpu
