// cpu.lp_pool, cpu.global_lp_pool: f32, row-major planes of one or two axes (global: of any). Powers are summed in
// double.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/pool/region_kernels.h"
#include "ops/windows.h"

namespace ridgeline::cpu {

namespace {

double power(double v, double p) { return p == 2 ? v * v : p == 1 ? std::fabs(v) : std::pow(std::fabs(v), p); }
float root(double sum, double p) { return float(p == 2 ? std::sqrt(sum) : p == 1 ? sum : std::pow(sum, 1 / p)); }

Support supports_global(const Problem& p) {
  if (p.input(0).dtype != DType::kF32) return no("{}: this kernel takes f32", name(p.input(0).dtype));
  if (!p.input(0).layout.is_row_major() || !p.output().layout.is_row_major()) return no("an operand is not row-major");
  if (p.has_epilogue()) return no("an epilogue on norms");
  if (p.integer("p") == 0) return no("p = 0");
  return yes();
}

Support supports(const Problem& p) {
  const int axes = p.input(0).layout.rank() - 2;
  if (axes > 2) return no("{} spatial axes, one or two are wanted", axes);
  return supports_global(p);
}

double each(const Problem& p) { return p.integer("p") <= 2 ? 1 : 40; }

double estimate_global(const Problem& p, const Tile&, const Ceilings& c) {
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads),
                  each(p) * double(p.input(0).elements()) / p.threads) +
         200;
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const double taps = double(element_count(p.integers("kernel_shape")));
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads),
                  (each(p) * taps + 5) * double(p.output().elements()) / p.threads) +
         200;
}

void run_global(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Extents& shape = call.problem.input(0).shape();
  const int64_t planes = shape[0] * shape[1], inner = element_count(std::span(shape).subspan(2));
  const double p = double(call.problem.integer("p"));
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  parallel(pool, planes, std::max<int64_t>(1, (16 << 10) / std::max<int64_t>(1, inner)),
           [&](int64_t begin, int64_t end, int) {
             for (; begin < end; ++begin) {
               const float* plane = x + begin * inner;
               double sums[4] = {};
               int64_t k = 0;
               for (; k + 4 <= inner; k += 4)
                 for (int64_t j = 0; j < 4; ++j) sums[j] += power(double(plane[k + j]), p);
               for (; k < inner; ++k) sums[0] += power(double(plane[k]), p);
               y[begin] = root((sums[0] + sums[1]) + (sums[2] + sums[3]), p);
             }
           });
}

/// Taps of one axis that lie inside: from the first on, `count` of them.
struct Taps {
  int64_t first, count;
};
Taps taps_of(const Window& w, size_t axis, int64_t out) {
  const int64_t at = out * w.stride[axis] - w.begin[axis], step = w.dilation[axis];
  const int64_t skipped = at < 0 ? (-at + step - 1) / step : 0, first = at + skipped * step;
  const int64_t room = first < w.in[axis] ? (w.in[axis] - 1 - first) / step + 1 : 0;
  return {first, std::clamp<int64_t>(w.kernel[axis] - skipped, 0, room)};
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  Window w = pool_window(p, p.input(0).shape());
  if (w.axes() == 1)  // one row
    for (Extents* list : {&w.in, &w.out, &w.kernel, &w.stride, &w.dilation}) list->insert(list->begin(), 1);
  if (w.begin.size() == 1) w.begin.insert(w.begin.begin(), 0);
  return std::make_shared<Window>(std::move(w));
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Window& w = call.state_as<Window>();
  const double p = double(call.problem.integer("p"));
  const int64_t planes = call.problem.input(0).shape()[0] * call.problem.input(0).shape()[1];
  const int64_t rows = w.out[0], columns = w.out[1], plane = w.in[0] * w.in[1];
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  if (planes * rows * columns == 0) return;
  parallel(pool, planes * rows, std::max<int64_t>(1, 2048 / columns), [&](int64_t begin, int64_t end, int) {
    for (; begin < end; ++begin) {
      const Taps down = taps_of(w, 0, begin % rows);
      const float* from = x + begin / rows * plane + down.first * w.in[1];
      for (int64_t c = 0; c < columns; ++c) {
        const Taps right = taps_of(w, 1, c);
        double sum = 0;
        for (int64_t v = 0; v < down.count; ++v)
          for (int64_t h = 0; h < right.count; ++h)
            sum += power(double(from[v * w.dilation[0] * w.in[1] + right.first + h * w.dilation[1]]), p);
        y[begin * columns + c] = root(sum, p);
      }
    }
  });
}

}  // namespace

constinit const Kernel kLpPoolKernel = {
    .name = "cpu.lp_pool", .op = "LpPool", .supports = supports, .estimate = estimate, .prepare = prepare, .run = run};
constinit const Kernel kGlobalLpPoolKernel = {.name = "cpu.global_lp_pool",
                                              .op = "GlobalLpPool",
                                              .supports = supports_global,
                                              .estimate = estimate_global,
                                              .run = run_global};

}  // namespace ridgeline::cpu
