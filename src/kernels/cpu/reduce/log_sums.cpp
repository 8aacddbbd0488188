// cpu.reduce_log_sum, cpu.reduce_log_sum_exp: f32, over axes that are neighbours. Sums and logarithms in double: a sum
// near 1 has a logarithm near 0, which would be the sum's error alone in f32.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/reduce/scan_kernels.h"

namespace ridgeline::cpu {

namespace {

constexpr int64_t kColumns = 32;

struct Span {
  int64_t outer = 1, extent = 1, inner = 1;
};

/// What is reduced, as one axis. Extent -1: the axes are no neighbours.
Span reduced_span(const Problem& p) {
  const Extents& shape = p.input(0).shape();
  const int64_t rank = int64_t(shape.size());
  const std::vector<int64_t> given = p.values(1);
  std::vector<bool> reduced(shape.size(), given.empty() && !p.flag("noop_with_empty_axes"));
  for (int64_t axis : given) reduced[size_t(axis < 0 ? axis + rank : axis)] = true;
  Span s;
  int part = 0;  // before, in, after what is reduced
  for (size_t a = 0; a < shape.size(); ++a) {
    if (part == 0 && reduced[a]) part = 1;
    if (part == 1 && !reduced[a]) part = 2;
    if (part == 2 && reduced[a]) return {1, -1, 1};
    (part == 0 ? s.outer : part == 1 ? s.extent : s.inner) *= shape[a];
  }
  return s;
}

Support supports(const Problem& p) {
  if (p.input(0).dtype != DType::kF32) return no("{}: this kernel takes f32", name(p.input(0).dtype));
  if (p.has(1) && !p.input(1).constant) return no("the axes are not known before the run");
  if (!p.input(0).layout.is_row_major() || !p.output().layout.is_row_major()) return no("an operand is not row-major");
  if (p.has_epilogue()) return no("an epilogue on logarithms");
  if (reduced_span(p).extent < 0) return no("the reduced axes are no neighbours");
  return yes();
}

template <bool kExp>
double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const double work = (kExp ? 10.0 : 1.0) * double(p.input(0).elements()) + 15.0 * double(p.output().elements());
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads), work / p.threads) + 200;
}

template <int64_t kLanes>
void log_sum(const float* x, float* y, const Span& s) {
  double sum[kLanes] = {};
  for (int64_t k = 0; k < s.extent; ++k)
    for (int64_t j = 0; j < kLanes; ++j) sum[j] += double(x[k * s.inner + j]);
  for (int64_t j = 0; j < kLanes; ++j) y[j] = float(std::log(sum[j]));
}

template <int64_t kLanes>
void log_sum_exp(const float* x, float* y, const Span& s) {
  float best[kLanes];
  for (float& b : best) b = -std::numeric_limits<float>::infinity();
  for (int64_t k = 0; k < s.extent; ++k) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const float v = x[k * s.inner + j];
      best[j] = v > best[j] || std::isnan(v) ? v : best[j];  // a NaN stays
    }
  }
  double sum[kLanes] = {};
  float around[kLanes];  // an infinity is the result by itself
  for (int64_t j = 0; j < kLanes; ++j) around[j] = std::isinf(best[j]) ? 0 : best[j];
  for (int64_t k = 0; k < s.extent; ++k)
    for (int64_t j = 0; j < kLanes; ++j) sum[j] += double(std::exp(x[k * s.inner + j] - around[j]));
  for (int64_t j = 0; j < kLanes; ++j) y[j] = std::isinf(best[j]) ? best[j] : float(double(best[j]) + std::log(sum[j]));
}

template <bool kExp, int64_t kLanes>
void one(const float* x, float* y, const Span& s) {
  if constexpr (kExp)
    log_sum_exp<kLanes>(x, y, s);
  else
    log_sum<kLanes>(x, y, s);
}

template <bool kExp>
void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Span s = reduced_span(call.problem);
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  const int64_t strips = (s.inner + kColumns - 1) / kColumns;
  const int64_t work = std::max<int64_t>(1, s.extent * std::min(s.inner, kColumns));
  parallel(pool, s.outer * strips, std::max<int64_t>(1, (4 << 10) / work), [&](int64_t begin, int64_t end, int) {
    for (; begin < end; ++begin) {
      const int64_t o = begin / strips, first = begin % strips * kColumns;
      const float* from = x + o * s.extent * s.inner + first;
      float* to = y + o * s.inner + first;
      if (first + kColumns <= s.inner)
        one<kExp, kColumns>(from, to, s);
      else
        for (int64_t j = 0; first + j < s.inner; ++j) one<kExp, 1>(from + j, to + j, s);
    }
  });
}

template <bool kExp>
constexpr Kernel log_kernel(std::string_view name, std::string_view op) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.supports = supports;
  k.estimate = estimate<kExp>;
  k.run = run<kExp>;
  return k;
}

}  // namespace

constinit const Kernel kReduceLogSumKernel = log_kernel<false>("cpu.reduce_log_sum", "ReduceLogSum");
constinit const Kernel kReduceLogSumExpKernel = log_kernel<true>("cpu.reduce_log_sum_exp", "ReduceLogSumExp");

}  // namespace ridgeline::cpu
