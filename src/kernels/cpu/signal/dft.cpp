// cpu.fft, cpu.stft: transforms side by side, as many as fill a vector, each group gathered into arrays of its own.
#include <algorithm>
#include <bit>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/signal/fft.h"
#include "kernels/cpu/signal/kernels.h"
#include "ops/signal.h"

namespace ridgeline::cpu {

namespace {

constexpr int64_t kGroupBytes = 1 << 20;  // of a group's arrays: larger ones leave the second cache

/// Where the series of a problem lie: series r has its samples at from(r) + t * step, in numbers; bins likewise.
struct Series {
  int64_t count = 0, length = 1, read = 0, bins = 0;
  int64_t inner = 1, frames = 1;                 // series r = (o, in) of a DFT, (o, frame) of an STFT
  int64_t x_outer = 0, x_inner = 0, x_step = 1;  // numbers from one to the next
  int64_t y_outer = 0, y_inner = 0, y_step = 1;
  int parts = 2, out_parts = 2;
  bool inverse = false, mirrored = false;  // mirrored: half a spectrum comes, the other half is its conjugate
  int64_t x_at(int64_t r) const { return r / inner * x_outer + r % inner * x_inner; }
  int64_t y_at(int64_t r) const { return r / inner * y_outer + r % inner * y_inner; }
};

Series series_of(const Problem& p) {
  Series s;
  if (p.op->name == "STFT") {
    const StftShape f = stft_shape(p);
    s.count = f.batch * f.frames;
    s.length = s.read = f.length;
    s.bins = f.bins;
    s.inner = f.frames;
    s.parts = f.parts;
    s.x_outer = f.samples * f.parts;
    s.x_inner = f.step * f.parts;
    s.x_step = f.parts;
    s.y_inner = f.bins * 2;
    s.y_outer = f.frames * s.y_inner;
    s.y_step = 2;
    return s;
  }
  const DftShape d = dft_shape(p);
  s.count = d.outer * d.inner;
  s.length = d.length;
  s.bins = d.bins;
  s.inner = d.inner;
  s.parts = d.parts;
  s.out_parts = d.out_parts;
  s.inverse = d.inverse;
  s.mirrored = d.inverse && d.one_sided;
  s.read = std::min(d.extent, s.mirrored ? d.length / 2 + 1 : d.length);
  s.x_step = d.inner * d.parts;
  s.x_inner = d.parts;
  s.x_outer = d.extent * s.x_step;
  s.y_step = d.inner * d.out_parts;
  s.y_inner = d.out_parts;
  s.y_outer = d.bins * s.y_step;
  return s;
}

template <typename T>
struct State {
  Series series;
  FftPlan<T> plan;
  int64_t group = 1;  // transforms side by side
};

bool is_double(const Problem& p) { return p.input(0).dtype == DType::kF64; }

/// No more side by side than there are, and than the second cache holds.
int64_t group_of(const Problem& p, int64_t count, int64_t size) {
  const int bytes = is_double(p) ? 8 : 4;
  const int64_t most = std::max<int64_t>(1, kGroupBytes / std::max<int64_t>(1, 4 * size * bytes));
  return int64_t(std::bit_floor(uint64_t(std::max<int64_t>(1, std::min({int64_t(fft_lanes(bytes)), most, count})))));
}

Support supports(const Problem& p) {
  for (int i = 0; i < p.op_inputs; ++i)
    if (p.has(i) && !p.input(i).layout.is_row_major()) return no("an operand is not row-major");
  if (!p.output().layout.is_row_major()) return no("the output is not row-major");
  if (p.has_epilogue()) return no("an epilogue on pairs of real and imaginary parts");
  for (int i = 1; i < p.op_inputs; ++i)
    if (p.has(i) && is_integer(p.input(i).dtype) && !p.input(i).constant)
      return no("its length, step or axis is known at run time only");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const Series s = series_of(p);
  const double each = fft_flops(s.length) * (is_double(p) ? 0.2 : 0.1) + double(s.read + s.bins) * 2;
  return c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads) +
         double(s.count) * each / std::max<double>(1, std::min<double>(double(s.count), p.threads)) + 300;
}

int64_t workspace(const Problem& p, const Tile&) {
  const Series s = series_of(p);
  const int64_t size = fft_size(s.length);
  return p.threads * 4 * size * group_of(p, s.count, size) * (is_double(p) ? 8 : 4);
}

template <typename T>
std::shared_ptr<const void> prepared(const Problem& p) {
  State<T> state{series_of(p), {}, 1};
  state.plan = make_fft<T>(state.series.length);
  state.group = group_of(p, state.series.count, state.plan.size);
  return std::make_shared<State<T>>(std::move(state));
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  return is_double(p) ? prepared<double>(p) : prepared<float>(p);
}

int64_t executed_flops(const Problem& p, const Tile&) {
  const Series s = series_of(p);
  return int64_t(double(s.count) * fft_flops(s.length));
}

template <typename T>
T read(DType dtype, const void* data, int64_t k) {
  if (dtype == DType::kF32) return T(static_cast<const float*>(data)[k]);
  if (dtype == DType::kF64) return T(static_cast<const double*>(data)[k]);
  return T(load_f64(dtype, data, k));
}
template <typename T>
void write(DType dtype, void* data, int64_t k, T value) {
  if (dtype == DType::kF32)
    static_cast<float*>(data)[k] = float(value);
  else if (dtype == DType::kF64)
    static_cast<double*>(data)[k] = value;
  else
    store_f64(dtype, data, k, value);
}

template <typename T>
struct Group {
  const State<T>& state;
  DType dtype;
  const void *x, *window;  // window: null if there is none
  void* y;
  T *re, *im, *other_re, *other_im;

  /// `count` series from `first` on, a power of two.
  void run(int64_t first, int64_t count) {
    const Series& s = state.series;
    for (int64_t q = 0; q < count; ++q) gather(s.x_at(first + q), q, count);
    // An inverse transform is one with the parts exchanged, before and after.
    T *a = s.inverse ? im : re, *b = s.inverse ? re : im, *c = s.inverse ? other_im : other_re,
      *d = s.inverse ? other_re : other_im;
    const bool other = run_fft(state.plan, count, a, b, c, d);
    for (int64_t q = 0; q < count; ++q)
      scatter(s.y_at(first + q), q, count, other ? other_re : re, other ? other_im : im);
  }

  void gather(int64_t from, int64_t q, int64_t lanes) {
    const Series& s = state.series;
    for (int64_t t = 0; t < s.read; ++t, from += s.x_step) {
      const T w = window ? read<T>(dtype, window, t) : T(1);
      re[t * lanes + q] = w * read<T>(dtype, x, from);
      im[t * lanes + q] = s.parts == 2 ? w * read<T>(dtype, x, from + 1) : T(0);
    }
    for (int64_t t = s.read; t < s.length; ++t) re[t * lanes + q] = im[t * lanes + q] = T(0);
    if (!s.mirrored) return;
    im[q] = T(0);
    if (s.length % 2 == 0) im[s.length / 2 * lanes + q] = T(0);
    for (int64_t t = 1; t < s.length - t; ++t) {
      re[(s.length - t) * lanes + q] = re[t * lanes + q];
      im[(s.length - t) * lanes + q] = -im[t * lanes + q];
    }
  }

  void scatter(int64_t to, int64_t q, int64_t lanes, const T* from_re, const T* from_im) {
    const Series& s = state.series;
    const T scale = s.inverse ? T(1) / T(s.length) : T(1);
    for (int64_t k = 0; k < s.bins; ++k, to += s.y_step) {
      write(dtype, y, to, scale * from_re[k * lanes + q]);
      // Of a real series the bins that are their own conjugates are real: no rounding error stands in place of 0.
      const T by = s.parts == 1 && (k == 0 || 2 * k == s.length) ? T(0) : scale;
      if (s.out_parts == 2) write(dtype, y, to + 1, by * from_im[k * lanes + q]);
    }
  }
};

template <typename T>
void run_as(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Problem& p = call.problem;
  const State<T>& state = call.state_as<State<T>>();
  if (p.output().elements() == 0) return;
  const bool windowed = p.op->name == "STFT" && p.has(2);
  const int64_t array = state.plan.size * state.group, count = state.series.count;
  const int64_t groups = (count + state.group - 1) / state.group;
  parallel(pool, groups, 1, [&](int64_t begin, int64_t end, int thread) {
    T* w = static_cast<T*>(buffers.workspace) + thread * 4 * array;
    Group<T> group{
        state,     p.input(0).dtype, buffers.inputs[0], windowed ? buffers.inputs[2] : nullptr, buffers.outputs[0], w,
        w + array, w + 2 * array,    w + 3 * array};
    for (int64_t g = begin; g < end; ++g) {
      int64_t first = g * state.group;
      const int64_t last = std::min(count, first + state.group);
      while (first < last) {  // what is left over: by falling powers of two
        const int64_t some = int64_t(std::bit_floor(uint64_t(last - first)));
        group.run(first, some);
        first += some;
      }
    }
  });
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  if (is_double(call.problem))
    run_as<double>(call, buffers, pool);
  else
    run_as<float>(call, buffers, pool);
}

}  // namespace

constinit const Kernel kDftKernel = {.name = "cpu.fft",
                                     .op = "DFT",
                                     .supports = supports,
                                     .estimate = estimate,
                                     .workspace = workspace,
                                     .prepare = prepare,
                                     .run = run,
                                     .executed_flops = executed_flops};
constinit const Kernel kStftKernel = {.name = "cpu.stft",
                                      .op = "STFT",
                                      .supports = supports,
                                      .estimate = estimate,
                                      .workspace = workspace,
                                      .prepare = prepare,
                                      .run = run,
                                      .executed_flops = executed_flops};

}  // namespace ridgeline::cpu
