// cpu.softmax, cpu.log_softmax: rows in L1, or vectors of neighbouring lanes where the axis is strided.
#include <algorithm>

#include "kernels/cpu/elementwise/epilogue_pass.h"
#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/elementwise/stream.h"
#include "kernels/cpu/normalize/norm_kernels.h"
#include "kernels/cpu/normalize/row_steps.h"

namespace ridgeline::cpu {

namespace {

constexpr int64_t kLongestAhead = 64 << 10;

struct State {
  LoopNest nest;  // all axes but the softmax's; operands x, y
  int64_t extent = 0, x_step = 1, y_step = 1;
  bool prefetch = false, stream = false;  // rows come from beyond L2, and go beyond the last cache
  EpiloguePass epilogue;
};

size_t axis_of(const Problem& p) {
  const int64_t axis = p.integer("axis"), rank = p.input(0).layout.rank();
  return size_t(axis < 0 ? axis + rank : axis);
}

Layout without(const Layout& layout, size_t axis) {
  Layout rest = layout;
  rest.shape.erase(rest.shape.begin() + int64_t(axis));
  rest.strides.erase(rest.strides.begin() + int64_t(axis));
  return rest;
}

LoopNest nest_of(const Problem& p) {
  const Layout x = without(p.input(0).layout, axis_of(p)), y = without(p.output().layout, axis_of(p));
  const Layout* const layouts[] = {&x, &y};
  return make_loop_nest(y.shape, layouts, 1);
}

bool rows(const State& s) { return s.extent <= 1 || (s.x_step == 1 && s.y_step == 1); }

Support supports(const Problem& p) {
  if (p.input(0).dtype != DType::kF32) return no("{}: this kernel takes f32", name(p.input(0).dtype));
  if (p.input(0).layout.rank() == 0) return no("a scalar");
  const size_t axis = axis_of(p);
  const bool contiguous = p.input(0).layout.strides[axis] == 1 && p.output().layout.strides[axis] == 1;
  if (!contiguous && p.input(0).shape()[axis] > 1) {
    const LoopNest nest = nest_of(p);
    if (nest.elements() > 1 && (nest.col_stride(0) != 1 || nest.col_stride(1) != 1))
      return no("neither the axis nor its lanes are contiguous");
  }
  return EpiloguePass::check(p);
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const int64_t n = p.output().elements();
  // Maximum and scaling run at the speed of L1 beside the exponentials.
  const double compute =
      c.special_ns(SpecialFunction::kExp, n, p.threads) + 4.0 * double(n) * 3 / c.read_gb_s[0].at(p.threads, c.cores);
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads), compute) + 100;
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  const size_t axis = axis_of(p);
  const int64_t bytes = p.read_bytes() + p.write_bytes();
  return std::make_shared<State>(State{nest_of(p), p.input(0).shape()[axis], p.input(0).layout.strides[axis],
                                       p.output().layout.strides[axis], bytes > this_cpu().caches.l2,
                                       bytes >= stream_threshold_bytes(), EpiloguePass(p)});
}

template <bool kLogarithm>
void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  if (s.extent == 0) return;
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  const int64_t grain = std::max<int64_t>(1, 8192 / s.extent);
  // As for the norms: the next row, or the short one that 8 KiB ahead, of long ones none.
  const int64_t step = s.nest.cols() > 1 ? s.nest.col_stride(0) : s.nest.row_stride(0);
  const int64_t ahead = s.prefetch && s.extent <= kLongestAhead ? step * std::max<int64_t>(1, 2048 / s.extent) : 0;
  const bool stream = s.stream && x != y;
  auto body = [&](const int64_t* offsets, int64_t count, int64_t cols) {
    for (int64_t i = 0; i < count; ++i) {
      const float* from = x + offsets[0] + i * s.nest.row_stride(0);
      float* to = y + offsets[1] + i * s.nest.row_stride(1);
      if (!rows(s)) {
        softmax_lanes(from, s.x_step, to, s.y_step, s.extent, cols, kLogarithm);
        continue;
      }
      for (int64_t j = 0; j < cols; ++j)
        softmax_row(from + j * s.nest.col_stride(0), to + j * s.nest.col_stride(1), s.extent, kLogarithm, ahead,
                    stream);
    }
    if (stream) flush_rows();
  };
  s.nest.run(pool, grain, body, rows(s) ? 1 : 16);
  s.epilogue.run(buffers, pool);
}

bool in_place(const Problem& p, int input) { return input == 0 && p.input(0).layout == p.output().layout; }

constexpr Kernel softmax(std::string_view name, std::string_view op,
                         void (*run)(const KernelCall&, const Buffers&, const ThreadPool&)) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.supports = supports;
  k.estimate = estimate;
  k.prepare = prepare;
  k.run = run;
  k.in_place = in_place;
  return k;
}

}  // namespace

constinit const Kernel kSoftmaxKernel = softmax("cpu.softmax", "Softmax", run<false>);
constinit const Kernel kLogSoftmaxKernel = softmax("cpu.log_softmax", "LogSoftmax", run<true>);

}  // namespace ridgeline::cpu
