// cpu.grid_sample: f32, two or three spatial axes. The elements that a position reads and their weights are found once
// for a block of positions, then each channel is summed with them. Positions in double: at 500 elements an axis those
// in f32 are off by 3e-5 of an element.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/movement/select_kernels.h"

namespace ridgeline::cpu {

namespace {

constexpr int64_t kBlock = 64;  // positions

enum class Padding { kZeros, kBorder, kReflection };

struct Axis {
  int64_t extent, stride;
  double low, high;
};

struct State {
  int axes = 2;
  Axis axis[3];  // in the order of the coordinates: the last axis first
  Padding padding = Padding::kZeros;
  bool corners = false;
  int64_t batch, channels, places, x_n, x_c;
};

/// The elements of one block of positions, or -1 for a zero; `all`: there are no zeros.
template <int kTaps>
struct Block {
  int64_t element[kTaps][kBlock];
  float weight[kTaps][kBlock];
  bool all;
};

double reflected(double x, const Axis& a) {
  const double range = a.high - a.low;
  if (!(range > 0)) return a.low;
  if (x >= a.low && x <= a.high) return x;
  const double distance = x < a.low ? a.low - x : x - a.high, turns = std::floor(distance / range),
               rest = distance - turns * range;
  return (std::fmod(turns, 2) == 0) == (x < a.low) ? a.low + rest : a.high - rest;
}

template <Padding kPadding, bool kWhole>
double position(double coordinate, const Axis& a, bool corners) {
  const double n = double(a.extent);
  double x = corners ? (coordinate + 1) * 0.5 * (n - 1) : ((coordinate + 1) * n - 1) * 0.5;
  if (kWhole) x = std::nearbyint(x);
  if (kPadding == Padding::kZeros) return x > -n - 4 && x < 2 * n + 4 ? x : -n - 4;
  if (kPadding == Padding::kBorder) return std::min(x > 0 ? x : 0, n - 1);  // NaN is 0
  if (x < a.low || x > a.high) x = reflected(x, a);
  return std::isfinite(x) ? x : 0;
}

/// The place of element k of an axis; -1: a zero. Positions are at most one beyond the axis unless zeros stand there.
template <Padding kPadding>
int64_t element(int64_t k, const Axis& a) {
  if (kPadding == Padding::kZeros) return uint64_t(k) < uint64_t(a.extent) ? k * a.stride : -1;
  return std::clamp<int64_t>(k, 0, a.extent - 1) * a.stride;
}

template <bool kNearest, int kAxes, Padding kPadding>
void find_taps(const State& s, const float* grid, int64_t count, Block<kNearest ? 1 : 1 << kAxes>& block) {
  constexpr int kTaps = kNearest ? 1 : 1 << kAxes;
  block.all = true;
  for (int64_t k = 0; k < count; ++k) {
    int64_t places[kTaps] = {0};
    float weights[kTaps] = {1};
    int taps = 1;
    for (int a = 0; a < kAxes; ++a) {
      const Axis& axis = s.axis[a];
      const double x = position<kPadding, kNearest>(double(grid[k * kAxes + a]), axis, s.corners);
      int64_t low = int64_t(x);
      if constexpr (kNearest) {
        const int64_t at = element<kPadding>(low, axis);
        places[0] = at < 0 || places[0] < 0 ? -1 : places[0] + at;
      } else {
        low -= x < double(low);  // the floor, without a call
        const int64_t at[2] = {element<kPadding>(low, axis), element<kPadding>(low + 1, axis)};
        const double fraction = x - double(low);
        for (int t = 0; t < taps; ++t) {
          places[taps + t] = at[1] < 0 || places[t] < 0 ? -1 : places[t] + at[1];
          weights[taps + t] = float(double(weights[t]) * fraction);
          places[t] = at[0] < 0 || places[t] < 0 ? -1 : places[t] + at[0];
          weights[t] = float(double(weights[t]) * (1 - fraction));
        }
        taps *= 2;
      }
    }
    for (int t = 0; t < kTaps; ++t) {
      block.element[t][k] = places[t];
      block.weight[t][k] = weights[t];
      block.all = block.all && places[t] >= 0;
    }
  }
}

template <bool kNearest, int kTaps>
void sum_taps(const float* __restrict x, const Block<kTaps>& block, int64_t count, float* __restrict y) {
  if (block.all) {
    for (int64_t k = 0; k < count; ++k) {
      float sum = kNearest ? x[block.element[0][k]] : block.weight[0][k] * x[block.element[0][k]];
      for (int t = 1; t < kTaps; ++t) sum += block.weight[t][k] * x[block.element[t][k]];
      y[k] = sum;
    }
    return;
  }
  for (int64_t k = 0; k < count; ++k) {
    float sum = 0;
    for (int t = 0; t < kTaps; ++t)
      if (block.element[t][k] >= 0)
        sum = kNearest ? x[block.element[t][k]] : sum + block.weight[t][k] * x[block.element[t][k]];
    y[k] = sum;
  }
}

template <bool kNearest, int kAxes>
void run_as(const State& s, const float* x, const float* grid, float* y, const ThreadPool& pool) {
  const auto find = s.padding == Padding::kZeros    ? find_taps<kNearest, kAxes, Padding::kZeros>
                    : s.padding == Padding::kBorder ? find_taps<kNearest, kAxes, Padding::kBorder>
                                                    : find_taps<kNearest, kAxes, Padding::kReflection>;
  constexpr int kTaps = kNearest ? 1 : 1 << kAxes;
  const int64_t blocks = (s.places + kBlock - 1) / kBlock;
  parallel(pool, s.batch * blocks, std::max<int64_t>(1, 64 / s.channels), [&](int64_t begin, int64_t end, int) {
    Block<kTaps> block;
    for (int64_t b = begin; b < end; ++b) {
      const int64_t n = b / blocks, first = b % blocks * kBlock, count = std::min(kBlock, s.places - first);
      find(s, grid + (n * s.places + first) * kAxes, count, block);
      for (int64_t c = 0; c < s.channels; ++c)
        sum_taps<kNearest, kTaps>(x + n * s.x_n + c * s.x_c, block, count, y + (n * s.channels + c) * s.places + first);
    }
  });
}

Support supports(const Problem& p) {
  if (p.input(0).dtype != DType::kF32 || p.input(1).dtype != DType::kF32)
    return no("{}, {}: this kernel takes f32", name(p.input(0).dtype), name(p.input(1).dtype));
  if (p.string("mode") == "cubic") return no("cubic interpolation");
  const int rank = p.input(0).layout.rank();
  if (rank != 4 && rank != 5) return no("{} spatial axes, two or three are wanted", rank - 2);
  if (!p.input(1).layout.is_row_major() || !p.output().layout.is_row_major()) return no("an operand is not row-major");
  if (p.has_epilogue()) return no("an epilogue on samples");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  // About 12 ns a position and axis, 0.7 ns an element that is read.
  const double taps = p.string("mode") == "nearest" ? 1 : double(1 << (p.input(0).layout.rank() - 2));
  const double work = 12.0 * double(p.input(1).elements()) + 0.7 * taps * double(p.output().elements());
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads), work / p.threads) + 300;
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  const Layout& x = p.input(0).layout;
  State s;
  s.axes = x.rank() - 2;
  s.corners = p.flag("align_corners");
  const std::string padding = p.string("padding_mode");
  s.padding = padding == "zeros" ? Padding::kZeros : padding == "border" ? Padding::kBorder : Padding::kReflection;
  s.batch = x.shape[0], s.channels = x.shape[1], s.x_n = x.strides[0], s.x_c = x.strides[1];
  s.places = element_count(std::span(p.output().shape()).subspan(2));
  for (int a = 0; a < s.axes; ++a) {
    const size_t from = size_t(x.rank() - 1 - a);
    const double n = double(x.shape[from]);
    s.axis[a] = {x.shape[from], x.strides[from], s.corners ? 0 : -0.5, n - (s.corners ? 1 : 0.5)};
  }
  return std::make_shared<State>(s);
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  if (s.batch * s.channels * s.places == 0) return;
  const bool nearest = call.problem.string("mode") == "nearest";
  const auto as =
      nearest ? (s.axes == 2 ? run_as<true, 2> : run_as<true, 3>) : (s.axes == 2 ? run_as<false, 2> : run_as<false, 3>);
  as(s, static_cast<const float*>(buffers.inputs[0]), static_cast<const float*>(buffers.inputs[1]),
     static_cast<float*>(buffers.outputs[0]), pool);
}

}  // namespace

constinit const Kernel kGridSampleKernel = {.name = "cpu.grid_sample",
                                            .op = "GridSample",
                                            .supports = supports,
                                            .estimate = estimate,
                                            .prepare = prepare,
                                            .run = run};

}  // namespace ridgeline::cpu
