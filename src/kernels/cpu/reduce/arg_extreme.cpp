// cpu.arg_max, cpu.arg_min: f32, one lane after the other. The first NaN is the best of all.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/reduce/reduce_kernels.h"
#include "kernels/cpu/reduce/reduce_steps.h"

namespace ridgeline::cpu {

namespace {

struct State {
  LoopNest nest;  // all axes but the one; operands x, y
  int64_t extent = 0, step = 1;
  bool last = false;
};

size_t axis_of(const Problem& p) {
  const int64_t axis = p.integer("axis"), rank = p.input(0).layout.rank();
  return size_t(axis < 0 ? axis + rank : axis);
}

Support supports(const Problem& p) {
  if (p.input(0).dtype != DType::kF32) return no("{}: this kernel takes f32", name(p.input(0).dtype));
  if (p.has_epilogue()) return no("an epilogue on indices");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const bool rows = p.input(0).layout.strides[axis_of(p)] == 1;
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads),
                  double(p.input(0).elements()) * (rows ? 0.3 : 2) / p.threads) +
         200;
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  const size_t axis = axis_of(p);
  Layout x = p.input(0).layout, y = p.output().layout;
  const int64_t extent = x.shape[axis], step = x.strides[axis];
  x.shape.erase(x.shape.begin() + int64_t(axis));
  x.strides.erase(x.strides.begin() + int64_t(axis));
  if (p.flag("keepdims")) {
    y.shape.erase(y.shape.begin() + int64_t(axis));
    y.strides.erase(y.strides.begin() + int64_t(axis));
  }
  const Layout* const layouts[] = {&x, &y};
  return std::make_shared<State>(State{make_loop_nest(x.shape, layouts, 1), extent, step, p.flag("select_last_index")});
}

template <bool kLargest>
int64_t place(const float* x, int64_t n, int64_t step, bool last) {
  if (step == 1) {  // the extreme by vectors, then where it is
    const double best = reduce_row(x, n, kLargest ? ReduceFold::kMax : ReduceFold::kMin);
    if (!std::isnan(best)) {
      const float value = float(best);
      if (last) {
        for (int64_t k = n; k-- > 0;)
          if (x[k] == value) return k;
      }
      return std::find(x, x + n, value) - x;
    }
  }
  int64_t best = 0;
  for (int64_t k = 1; k < n; ++k) {
    const float v = x[k * step], top = x[best * step];
    if (std::isnan(top)) break;
    if (std::isnan(v) || (kLargest ? v > top : v < top) || (last && v == top)) best = k;
  }
  return best;
}

template <bool kLargest>
void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  int64_t* y = static_cast<int64_t*>(buffers.outputs[0]);
  s.nest.run(
      pool, std::max<int64_t>(1, 8192 / std::max<int64_t>(1, s.extent)),
      [&](const int64_t* offsets, int64_t rows, int64_t cols) {
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < cols; ++j)
            y[offsets[1] + i * s.nest.row_stride(1) + j * s.nest.col_stride(1)] = place<kLargest>(
                x + offsets[0] + i * s.nest.row_stride(0) + j * s.nest.col_stride(0), s.extent, s.step, s.last);
      },
      8);
}

template <bool kLargest>
constexpr Kernel arg_extreme(std::string_view name, std::string_view op) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.supports = supports;
  k.estimate = estimate;
  k.prepare = prepare;
  k.run = run<kLargest>;
  return k;
}

}  // namespace

constinit const Kernel kArgMaxKernel = arg_extreme<true>("cpu.arg_max", "ArgMax");
constinit const Kernel kArgMinKernel = arg_extreme<false>("cpu.arg_min", "ArgMin");

}  // namespace ridgeline::cpu
