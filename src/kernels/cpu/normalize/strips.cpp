// cpu.hardmax, cpu.lp_normalization, cpu.lrn, cpu.mean_variance: f32, row-major. Along an axis that is not the
// contiguous one a strip of columns is worked on side by side, in double where it sums.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/normalize/strip_kernels.h"

namespace ridgeline::cpu {

namespace {

constexpr int64_t kColumns = 32;

/// An axis with what stands before and after it.
struct Span {
  int64_t outer = 1, extent = 1, inner = 1;
};

Span span_at(const Extents& shape, int64_t axis) {
  const size_t at = size_t(axis < 0 ? axis + int64_t(shape.size()) : axis);
  return {element_count(std::span(shape).first(at)), shape[at], element_count(std::span(shape).subspan(at + 1))};
}

Support supports(const Problem& p) {
  if (p.input(0).dtype != DType::kF32) return no("{}: this kernel takes f32", name(p.input(0).dtype));
  if (!p.input(0).layout.is_row_major() || !p.output().layout.is_row_major()) return no("an operand is not row-major");
  if (p.has_epilogue()) return no("an epilogue");
  return yes();
}

double streamed(const Problem& p, const Ceilings& c, double ns_each) {
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads),
                  ns_each * double(p.output().elements()) / p.threads) +
         200;
}
double estimate(const Problem& p, const Tile&, const Ceilings& c) { return streamed(p, c, 1); }

/// lanes<N>(x, y): N neighbouring columns, or N = 1 row or column.
template <class Lanes>
void for_strips(const Span& s, const ThreadPool& pool, const Lanes& lanes) {
  if (s.outer * s.extent * s.inner == 0) return;
  const int64_t strips = (s.inner + kColumns - 1) / kColumns;
  parallel(pool, s.outer * strips, std::max<int64_t>(1, (16 << 10) / (s.extent * std::min(s.inner, kColumns))),
           [&](int64_t begin, int64_t end, int) {
             for (; begin < end; ++begin) {
               const int64_t first = begin % strips * kColumns, at = begin / strips * s.extent * s.inner + first;
               if (first + kColumns <= s.inner)
                 lanes.template operator()<kColumns>(at);
               else
                 for (int64_t j = 0; first + j < s.inner; ++j) lanes.template operator()<1>(at + j);
             }
           });
}

template <int64_t kLanes>
void hardmax(const float* x, float* y, const Span& s) {
  float best[kLanes];
  int64_t place[kLanes];
  for (int64_t j = 0; j < kLanes; ++j) best[j] = x[j], place[j] = 0;
  for (int64_t k = 0; k < s.extent; ++k) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const float v = x[k * s.inner + j];
      if (v > best[j]) best[j] = v, place[j] = k;
      y[k * s.inner + j] = 0;
    }
  }
  for (int64_t j = 0; j < kLanes; ++j) y[place[j] * s.inner + j] = 1;
}

void run_hardmax(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Span s = span_at(call.problem.input(0).shape(), call.problem.integer("axis"));
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  for_strips(s, pool, [&]<int64_t kLanes>(int64_t at) { hardmax<kLanes>(x + at, y + at, s); });
}

template <int64_t kLanes>
void lp_normalize(const float* x, float* y, const Span& s, bool squares) {
  double sum[kLanes] = {};
  for (int64_t k = 0; k < s.extent; ++k) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const double v = double(x[k * s.inner + j]);
      sum[j] += squares ? v * v : std::fabs(v);
    }
  }
  for (double& total : sum) {
    const double norm = squares ? std::sqrt(total) : total;
    total = norm == 0 ? 0 : 1 / norm;
  }
  for (int64_t k = 0; k < s.extent; ++k)
    for (int64_t j = 0; j < kLanes; ++j) y[k * s.inner + j] = float(double(x[k * s.inner + j]) * sum[j]);
}

void run_lp_normalization(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Span s = span_at(call.problem.input(0).shape(), call.problem.integer("axis"));
  const bool squares = call.problem.integer("p") == 2;
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  for_strips(s, pool, [&]<int64_t kLanes>(int64_t at) { lp_normalize<kLanes>(x + at, y + at, s, squares); });
}

// ---- LRN

struct Response {
  int64_t before, after;
  float factor, bias, beta;
};

/// x / s^beta; the usual 0.75 is two roots.
float damped(float x, float s, float beta) {
  if (beta == 0.75F) {
    const float root = std::sqrt(s);
    return x / (root * std::sqrt(root));
  }
  return float(double(x) / std::pow(double(s), double(beta)));
}

/// Each sum anew: one that slides would carry an infinity, once met, to all channels after it.
template <int64_t kLanes>
void respond(const float* x, float* y, const Span& s, const Response& r) {
  for (int64_t k = 0; k < s.extent; ++k) {
    float sum[kLanes] = {};
    const int64_t from = std::max<int64_t>(0, k - r.before), to = std::min(s.extent - 1, k + r.after);
    for (int64_t other = from; other <= to; ++other)
      for (int64_t j = 0; j < kLanes; ++j) sum[j] += x[other * s.inner + j] * x[other * s.inner + j];
    for (int64_t j = 0; j < kLanes; ++j)
      y[k * s.inner + j] = damped(x[k * s.inner + j], r.bias + r.factor * sum[j], r.beta);
  }
}

void run_lrn(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Problem& p = call.problem;
  const Span s = span_at(p.input(0).shape(), 1);
  const int64_t size = p.integer("size"), before = (size - 1) / 2;
  const Response r{before, size - 1 - before, float(p.number("alpha") / double(size)), float(p.number("bias")),
                   float(p.number("beta"))};
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  for_strips(s, pool, [&]<int64_t kLanes>(int64_t at) { respond<kLanes>(x + at, y + at, s, r); });
}

double estimate_lrn(const Problem& p, const Tile&, const Ceilings& c) {
  return streamed(p, c, (p.number("beta") == 0.75 ? 5 : 40) + 0.3 * double(p.integer("size")));
}

// ---- MeanVarianceNormalization

/// The axes that stay, as one: what is reduced stands before and after them. Extent -1: they are no neighbours.
Span kept_span(const Problem& p) {
  const Extents& shape = p.input(0).shape();
  const int64_t rank = int64_t(shape.size());
  std::vector<bool> reduced(shape.size(), false);
  for (int64_t axis : p.integers("axes", {0, 2, 3})) reduced[size_t(axis < 0 ? axis + rank : axis)] = true;
  Span s;
  int part = 0;  // before, in, after what stays
  for (size_t a = 0; a < shape.size(); ++a) {
    if (part == 0 && !reduced[a]) part = 1;
    if (part == 1 && reduced[a]) part = 2;
    if (part == 2 && !reduced[a]) return {1, -1, 1};
    (part == 0 ? s.outer : part == 1 ? s.extent : s.inner) *= shape[a];
  }
  return s;
}

Support supports_mean_variance(const Problem& p) {
  const Span s = kept_span(p);
  if (s.extent < 0) return no("the axes that stay are no neighbours");
  if (s.inner == 1 && s.extent > 1 && s.outer > 1) return no("the contiguous axis stays");
  return supports(p);
}

void run_mean_variance(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Span s = kept_span(call.problem);
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  const int64_t count = s.outer * s.inner;
  if (count * s.extent == 0) return;
  parallel(pool, s.extent, std::max<int64_t>(1, (16 << 10) / count), [&](int64_t begin, int64_t end, int) {
    for (; begin < end; ++begin) {
      // Eight sums side by side: one alone waits for itself.
      const auto total = [&](const auto& of) {
        double sums[8] = {};
        for (int64_t o = 0; o < s.outer; ++o) {
          const float* row = x + (o * s.extent + begin) * s.inner;
          int64_t k = 0;
          for (; k + 8 <= s.inner; k += 8)
            for (int64_t j = 0; j < 8; ++j) sums[j] += of(double(row[k + j]));
          for (; k < s.inner; ++k) sums[0] += of(double(row[k]));
        }
        return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
      };
      const double mean = total([](double v) { return v; }) / double(count);
      const double variance = total([&](double v) { return (v - mean) * (v - mean); }) / double(count);
      const double factor = 1 / (std::sqrt(variance) + 1e-9);
      for (int64_t o = 0; o < s.outer; ++o) {
        const int64_t at = (o * s.extent + begin) * s.inner;
        for (int64_t k = 0; k < s.inner; ++k) y[at + k] = float((double(x[at + k]) - mean) * factor);
      }
    }
  });
}

constexpr Kernel strip_kernel(std::string_view name, std::string_view op,
                              void (*run)(const KernelCall&, const Buffers&, const ThreadPool&)) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.supports = supports;
  k.estimate = estimate;
  k.run = run;
  return k;
}

}  // namespace

constinit const Kernel kHardmaxKernel = strip_kernel("cpu.hardmax", "Hardmax", run_hardmax);
constinit const Kernel kLpNormalizationKernel =
    strip_kernel("cpu.lp_normalization", "LpNormalization", run_lp_normalization);
constinit const Kernel kLrnKernel = [] {
  Kernel k = strip_kernel("cpu.lrn", "LRN", run_lrn);
  k.estimate = estimate_lrn;
  return k;
}();
constinit const Kernel kMeanVarianceKernel = [] {
  Kernel k = strip_kernel("cpu.mean_variance", "MeanVarianceNormalization", run_mean_variance);
  k.supports = supports_mean_variance;
  return k;
}();

}  // namespace ridgeline::cpu
