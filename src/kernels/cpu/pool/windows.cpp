// cpu.max_pool_last, cpu.average_pool_last (channels contiguous: a vector of channels at a time) and
// cpu.max_pool_planes, cpu.average_pool_planes (NCHW: a vector of neighbouring outputs at a time). Two spatial axes, or
// one as a row.
#include "ops/windows.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/elementwise/epilogue_pass.h"
#include "kernels/cpu/pool/pool_kernels.h"
#include "kernels/cpu/pool/pool_steps.h"

namespace ridgeline::cpu {

namespace {

constexpr int64_t kMostTaps = 256;

/// Which taps of a window at output position `o` lie inside, and how many inside the padded input.
struct Span {
  int64_t first = 0, count = 0, padded = 0;
};

struct State {
  int64_t batch = 0, channels = 0;
  int64_t in_h = 1, in_w = 1, out_h = 1, out_w = 1, kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1;
  int64_t dilation_h = 1, dilation_w = 1, top = 0, left = 0;
  std::array<int64_t, 4> x{}, y{};  // strides of n, c, h, w
  std::vector<Span> spans_h, spans_w;
  int64_t whole_begin = 0, whole_end = 0;  // outputs of a row whose windows lie inside
  bool count_padding = false;
  DType dtype = DType::kF32;
  EpiloguePass epilogue;
};

Window window_of_problem(const Problem& p) { return pool_window(p, p.input(0).shape()); }

std::vector<Span> spans(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t dilation, int64_t before,
                        int64_t after) {
  std::vector<Span> result;
  for (int64_t o = 0; o < out; ++o) {
    Span s;
    const int64_t begin = o * stride - before;
    for (int64_t t = 0; t < kernel; ++t) {
      const int64_t at = begin + t * dilation;
      s.padded += at < in + after;
      if (at < 0 || at >= in) continue;
      if (s.count++ == 0) s.first = t;
    }
    result.push_back(s);
  }
  return result;
}

bool channels_contiguous(const Problem& p) {
  return p.input(0).shape()[1] == 1 || (p.input(0).layout.strides[1] == 1 && p.output().layout.strides[1] == 1);
}
bool rows_contiguous(const Layout& l) { return l.shape.back() == 1 || l.strides.back() == 1; }

template <bool kLast>
Support supports(const Problem& p) {
  const Layout& x = p.input(0).layout;
  if (const DType t = p.input(0).dtype; kLast) {
    const bool byte = p.op->name == "MaxPool" && (t == DType::kU8 || t == DType::kI8);
    if (t != DType::kF32 && t != DType::kBF16 && !byte)
      return no("{}: this kernel takes f32, bf16, and bytes for maxima", name(t));
  } else if (t != DType::kF32) {
    return no("{}: this kernel takes f32", name(t));
  }
  if (x.rank() != 3 && x.rank() != 4) return no("{} spatial axes", x.rank() - 2);
  if (p.outputs.size() > 1 && p.outputs[1].present()) return no("the places of the maxima are wanted");
  const std::vector<int64_t> kernel = p.integers("kernel_shape");
  if (element_count(kernel) > kMostTaps) return no("a window of {} taps, at most {}", element_count(kernel), kMostTaps);
  if (kLast && !channels_contiguous(p)) return no("the channels are not contiguous");
  if (!kLast && (!rows_contiguous(x) || !rows_contiguous(p.output().layout)))
    return no("the rows of the planes are not contiguous");
  if (p.input(0).dtype != DType::kF32 && p.has_epilogue()) return no("an epilogue after {}", name(p.input(0).dtype));
  return EpiloguePass::check(p);
}

template <bool kLast>
double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const double taps = double(element_count(p.integers("kernel_shape")));
  // A tap is a load from L1 and a fold; windows that overlap in a row cannot share loads. Few channels leave lanes
  // empty.
  const int64_t channels = p.input(0).shape()[1];
  const double lanes = kLast ? double((channels + 15) / 16 * 16) / double(std::max<int64_t>(1, channels)) : 1.6;
  const double compute = taps * lanes * 4 * double(p.output().elements()) / c.read_gb_s[0].at(p.threads, c.cores);
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads), compute) + 200;
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  const Window w = window_of_problem(p);
  const Layout &x = p.input(0).layout, &y = p.output().layout;
  State s{.epilogue = EpiloguePass(p)};
  const bool two = w.axes() == 2;
  s.batch = x.shape[0];
  s.channels = x.shape[1];
  const size_t last = two ? 1 : 0;
  s.in_w = w.in[last], s.out_w = w.out[last], s.kernel_w = w.kernel[last], s.stride_w = w.stride[last],
  s.dilation_w = w.dilation[last], s.left = w.begin[last];
  if (two)
    s.in_h = w.in[0], s.out_h = w.out[0], s.kernel_h = w.kernel[0], s.stride_h = w.stride[0],
    s.dilation_h = w.dilation[0], s.top = w.begin[0];
  auto strides = [&](const Layout& l) {
    return std::array<int64_t, 4>{l.strides[0], l.strides[1], two ? l.strides[2] : 0, l.strides.back()};
  };
  s.x = strides(x);
  s.y = strides(y);
  s.spans_h = spans(s.in_h, s.out_h, s.kernel_h, s.stride_h, s.dilation_h, s.top, two ? w.end[0] : 0);
  s.spans_w = spans(s.in_w, s.out_w, s.kernel_w, s.stride_w, s.dilation_w, s.left, w.end[last]);
  while (s.whole_begin < s.out_w && s.spans_w[size_t(s.whole_begin)].count < s.kernel_w) ++s.whole_begin;
  s.whole_end = s.whole_begin;
  while (s.whole_end < s.out_w && s.spans_w[size_t(s.whole_end)].count == s.kernel_w) ++s.whole_end;
  s.dtype = p.input(0).dtype;
  s.count_padding = p.op->name == "AveragePool" && p.flag("count_include_pad");
  return std::make_shared<State>(std::move(s));
}

/// What a sum is multiplied with: windows that see nothing give 0.
float mean_factor(const State& s, const Span& h, const Span& w) {
  const int64_t count = s.count_padding ? h.padded * w.padded : h.count * w.count;
  return count ? 1.0f / float(count) : 0.0f;
}

constexpr int64_t kColumnBytes = 16 << 10;  // of maxima over rows, in the first cache

/// Outputs whose columns fit at a time; 0: maxima go window by window.
int64_t columns_at_a_time(const State& s) {
  if (s.dtype == DType::kF32 || s.x[3] != s.channels || s.kernel_h * s.kernel_w == 1) return 0;
  const int64_t columns = kColumnBytes / (s.channels * bytes_of(s.dtype, 1)),
                window = (s.kernel_w - 1) * s.dilation_w + 1;
  return columns < window ? 0 : (columns - window) / s.stride_w + 1;
}

/// A row of maxima of bytes or bf16, `step` outputs at a time, rows of the window first.
void max_row(const State& s, const char* from, const Span& h, int64_t top, int64_t step, char* to) {
  alignas(64) char columns[kColumnBytes];
  const int64_t bytes = bytes_of(s.dtype, 1), pixel = s.channels * bytes;
  for (int64_t first = 0; first < s.out_w; first += step) {
    const int64_t last = std::min(s.out_w, first + step);
    const auto column = [&s](int64_t ow) { return ow * s.stride_w - s.left; };
    const int64_t begin = std::max<int64_t>(0, column(first));
    const int64_t end = std::min(s.in_w, column(last - 1) + (s.kernel_w - 1) * s.dilation_w + 1);
    const void* rows[kMostTaps];
    for (int64_t r = 0; r < h.count; ++r)
      rows[r] = from + ((top + (h.first + r) * s.dilation_h) * s.x[2] + begin * s.channels) * bytes;
    if (end > begin) max_rows_narrow(s.dtype, rows, h.count, (end - begin) * s.channels, columns);
    for (int64_t ow = first; ow < last; ++ow) {
      const Span& w = s.spans_w[size_t(ow)];
      char* y = to + ow * s.y[3] * bytes;
      if (w.count == 0)
        pool_lanes_narrow(s.dtype, from, nullptr, 0, y, s.channels, PoolFold::kMax, 1);
      else
        max_columns_narrow(s.dtype, columns + (column(ow) + w.first * s.dilation_w - begin) * pixel,
                           s.dilation_w * s.channels, w.count, s.channels, y);
    }
  }
}

template <PoolFold kFold>
void run_last(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const char* x = static_cast<const char*>(buffers.inputs[0]);
  char* y = static_cast<char*>(buffers.outputs[0]);
  const int64_t bytes = bytes_of(s.dtype, 1);
  if (s.channels == 0) return;
  const int64_t row_work = s.out_w * s.channels * s.kernel_h * s.kernel_w;
  const int64_t step = kFold == PoolFold::kMax ? columns_at_a_time(s) : 0;
  parallel(pool, s.batch * s.out_h, std::max<int64_t>(1, (32 << 10) / std::max<int64_t>(1, row_work)),
           [&](int64_t begin, int64_t end, int) {
             int64_t offsets[kMostTaps];
             for (int64_t row = begin; row < end; ++row) {
               const int64_t n = row / s.out_h, oh = row % s.out_h;
               const Span& h = s.spans_h[size_t(oh)];
               if (step > 0 && h.count > 0) {
                 max_row(s, x + n * s.x[0] * bytes, h, oh * s.stride_h - s.top, step,
                         y + (n * s.y[0] + oh * s.y[2]) * bytes);
                 continue;
               }
               for (int64_t ow = 0; ow < s.out_w; ++ow) {
                 const Span& w = s.spans_w[size_t(ow)];
                 int64_t taps = 0;
                 for (int64_t r = 0; r < h.count; ++r) {
                   const int64_t at_h = oh * s.stride_h - s.top + (h.first + r) * s.dilation_h;
                   for (int64_t t = 0; t < w.count; ++t)
                     offsets[taps++] =
                         at_h * s.x[2] + (ow * s.stride_w - s.left + (w.first + t) * s.dilation_w) * s.x[3];
                 }
                 const char* from = x + n * s.x[0] * bytes;
                 char* to = y + (n * s.y[0] + oh * s.y[2] + ow * s.y[3]) * bytes;
                 if (s.dtype == DType::kF32)
                   pool_lanes(reinterpret_cast<const float*>(from), offsets, taps, reinterpret_cast<float*>(to),
                              s.channels, kFold, mean_factor(s, h, w));
                 else
                   pool_lanes_narrow(s.dtype, from, offsets, taps, to, s.channels, kFold, mean_factor(s, h, w));
               }
             }
           });
  s.epilogue.run(buffers, pool);
}

template <PoolFold kFold>
void run_planes(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  const int64_t plane_work = s.out_h * s.out_w * s.kernel_h * s.kernel_w;
  parallel(pool, s.batch * s.channels, std::max<int64_t>(1, (16 << 10) / std::max<int64_t>(1, plane_work)),
           [&](int64_t begin, int64_t end, int) {
             const float* rows[kMostTaps];
             for (int64_t plane = begin; plane < end; ++plane) {
               const float* from = x + plane / s.channels * s.x[0] + plane % s.channels * s.x[1];
               float* to = y + plane / s.channels * s.y[0] + plane % s.channels * s.y[1];
               for (int64_t oh = 0; oh < s.out_h; ++oh) {
                 const Span& h = s.spans_h[size_t(oh)];
                 for (int64_t r = 0; r < h.count; ++r)
                   rows[r] = from + (oh * s.stride_h - s.top + (h.first + r) * s.dilation_h) * s.x[2];
                 float* out = to + oh * s.y[2];
                 // Outputs at the borders one by one, those between as vectors.
                 auto border = [&](int64_t ow) {
                   const Span& w = s.spans_w[size_t(ow)];
                   const float* shifted[kMostTaps];
                   for (int64_t r = 0; r < h.count; ++r)
                     shifted[r] = rows[r] + ow * s.stride_w - s.left + w.first * s.dilation_w;
                   pool_row(shifted, h.count, w.count, 1, s.dilation_w, out + ow, 1, kFold);
                 };
                 for (int64_t ow = 0; ow < s.whole_begin; ++ow) border(ow);
                 if (s.whole_end > s.whole_begin) {
                   for (int64_t r = 0; r < h.count; ++r) rows[r] += s.whole_begin * s.stride_w - s.left;
                   pool_row(rows, h.count, s.kernel_w, s.stride_w, s.dilation_w, out + s.whole_begin,
                            s.whole_end - s.whole_begin, kFold);
                   for (int64_t r = 0; r < h.count; ++r) rows[r] -= s.whole_begin * s.stride_w - s.left;
                 }
                 for (int64_t ow = s.whole_end; ow < s.out_w; ++ow) border(ow);
                 if constexpr (kFold == PoolFold::kSum)
                   for (int64_t ow = 0; ow < s.out_w; ++ow) out[ow] *= mean_factor(s, h, s.spans_w[size_t(ow)]);
               }
             }
           });
  s.epilogue.run(buffers, pool);
}

template <bool kLast>
constexpr Kernel pool_kernel(std::string_view name, std::string_view op,
                             void (*run)(const KernelCall&, const Buffers&, const ThreadPool&)) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.supports = supports<kLast>;
  k.estimate = estimate<kLast>;
  k.prepare = prepare;
  k.run = run;
  k.version = kLast ? 2 : 1;
  return k;
}

}  // namespace

constinit const Kernel kMaxPoolLastKernel = pool_kernel<true>("cpu.max_pool_last", "MaxPool", run_last<PoolFold::kMax>);
constinit const Kernel kAveragePoolLastKernel =
    pool_kernel<true>("cpu.average_pool_last", "AveragePool", run_last<PoolFold::kSum>);
constinit const Kernel kMaxPoolPlanesKernel =
    pool_kernel<false>("cpu.max_pool_planes", "MaxPool", run_planes<PoolFold::kMax>);
constinit const Kernel kAveragePoolPlanesKernel =
    pool_kernel<false>("cpu.average_pool_planes", "AveragePool", run_planes<PoolFold::kSum>);

}  // namespace ridgeline::cpu
