// cpu.global_average_pool, cpu.global_max_pool: planes that are contiguous, or channels that are.
#include <algorithm>

#include "kernels/cpu/elementwise/epilogue_pass.h"
#include "kernels/cpu/pool/pool_kernels.h"
#include "kernels/cpu/pool/pool_steps.h"

namespace ridgeline::cpu {

namespace {

struct State {
  int64_t batch = 0, channels = 0, inner = 1;
  int64_t x_n = 0, x_c = 0, y_n = 0, y_c = 0;
  bool planes = true;
  EpiloguePass epilogue;
};

Layout plane(const Layout& l) {
  return Layout(Extents(l.shape.begin() + 2, l.shape.end()), Extents(l.strides.begin() + 2, l.strides.end()));
}

/// The spatial axes as one of equal steps: its step (0 where Expand repeats one pixel), or -1.
int64_t spatial_step(const Layout& x) {
  int64_t step = 1, expected = 0;
  bool found = false;
  for (size_t a = x.shape.size(); a-- > 2;) {
    if (x.shape[a] == 1) continue;
    if (!found) step = expected = x.strides[a];
    found = true;
    if (x.strides[a] < 0 || x.strides[a] != expected) return -1;
    expected *= x.shape[a];
  }
  return step;
}

Support supports(const Problem& p) {
  const Layout& x = p.input(0).layout;
  const bool last =
      (x.shape[1] == 1 || (x.strides[1] == 1 && p.output().layout.strides[1] == 1)) && spatial_step(x) >= 0;
  const bool mean_bf16 = p.input(0).dtype == DType::kBF16 && p.op->name == "GlobalAveragePool" && last;
  if (p.input(0).dtype != DType::kF32 && !mean_bf16)
    return no("{}: this kernel takes f32, and means of bf16 with contiguous channels", name(p.input(0).dtype));
  if (!plane(x).is_row_major() && !last) return no("neither the planes nor the channels are contiguous");
  if (p.input(0).dtype != DType::kF32 && p.has_epilogue()) return no("an epilogue after {}", name(p.input(0).dtype));
  return EpiloguePass::check(p);
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  return c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads) + 200;
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  const Layout &x = p.input(0).layout, &y = p.output().layout;
  return std::make_shared<State>(State{x.shape[0], x.shape[1], plane(x).elements(), x.strides[0], x.strides[1],
                                       y.strides[0], y.strides[1], plane(x).is_row_major(), EpiloguePass(p)});
}

void run_bf16(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const uint16_t* x = static_cast<const uint16_t*>(buffers.inputs[0]);
  uint16_t* y = static_cast<uint16_t*>(buffers.outputs[0]);
  const int64_t step = spatial_step(call.problem.input(0).layout), groups = (s.channels + 31) / 32;
  const float factor = float(1.0 / double(s.inner));
  parallel(pool, s.batch * groups, std::max<int64_t>(1, (2 << 10) / std::max<int64_t>(1, s.inner)),
           [&](int64_t begin, int64_t end, int) {
             for (; begin < end; ++begin) {
               const int64_t n = begin / groups, first = begin % groups * 32;
               mean_columns_bf16(x + n * s.x_n + first, step, s.inner, y + n * s.y_n + first,
                                 std::min<int64_t>(32, s.channels - first), factor);
             }
           });
}

template <PoolFold kFold>
void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  if (call.problem.input(0).dtype == DType::kBF16) return run_bf16(call, buffers, pool);
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  const float factor = kFold == PoolFold::kSum ? float(1.0 / double(s.inner)) : 1.0f;
  if (s.planes) {
    parallel(pool, s.batch * s.channels, std::max<int64_t>(1, (32 << 10) / std::max<int64_t>(1, s.inner)),
             [&](int64_t begin, int64_t end, int) {
               for (int64_t k = begin; k < end; ++k) {
                 const double folded = pool_plane(x + k / s.channels * s.x_n + k % s.channels * s.x_c, s.inner, kFold);
                 y[k / s.channels * s.y_n + k % s.channels * s.y_c] =
                     float(kFold == PoolFold::kSum ? folded / double(s.inner) : folded);
               }
             });
  } else {
    const int64_t step = spatial_step(call.problem.input(0).layout);
    // A cache line of channels is the least that is worth a thread.
    const int64_t groups = (s.channels + 15) / 16;
    parallel(pool, s.batch * groups, std::max<int64_t>(1, (2 << 10) / std::max<int64_t>(1, s.inner)),
             [&](int64_t begin, int64_t end, int) {
               while (begin < end) {
                 const int64_t n = begin / groups, first = begin % groups, stop = std::min(groups, first + end - begin);
                 const int64_t lanes = std::min(s.channels, stop * 16) - first * 16;
                 float* to = y + n * s.y_n + first * 16;
                 pool_columns(x + n * s.x_n + first * 16, step, s.inner, to, lanes, kFold);
                 if (kFold == PoolFold::kSum)
                   for (int64_t j = 0; j < lanes; ++j) to[j] *= factor;
                 begin += stop - first;
               }
             });
  }
  s.epilogue.run(buffers, pool);
}

constexpr Kernel global_pool(std::string_view name, std::string_view op,
                             void (*run)(const KernelCall&, const Buffers&, const ThreadPool&)) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.supports = supports;
  k.estimate = estimate;
  k.prepare = prepare;
  k.run = run;
  return k;
}

}  // namespace

constinit const Kernel kGlobalAveragePoolKernel =
    global_pool("cpu.global_average_pool", "GlobalAveragePool", run<PoolFold::kSum>);
constinit const Kernel kGlobalMaxPoolKernel = global_pool("cpu.global_max_pool", "GlobalMaxPool", run<PoolFold::kMax>);

}  // namespace ridgeline::cpu
