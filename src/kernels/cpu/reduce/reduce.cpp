// cpu.reduce_*: over any axes. (Logarithms of sums, which want double, are in log_sums.cpp.) Either the contiguous axis
// is reduced (rows), or it stays (lanes side by side).
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/cpu/elementwise/epilogue_pass.h"
#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/reduce/reduce_kernels.h"
#include "kernels/cpu/reduce/reduce_steps.h"
#include "machine/probe.h"

namespace ridgeline::cpu {

namespace {

enum class Finish { kNone, kMean, kRoot };

constexpr int64_t kPart = 1 << 16;  // elements of a long reduction that one piece of work takes

struct State {
  LoopNest kept;     // operands x, y
  LoopNest reduced;  // operand x
  bool lanes = false;
  bool far = false;  // x comes from memory
  EpiloguePass epilogue;
  /// A reduction to few numbers is split over the threads along itself: partial results in the workspace.
  bool split() const { return !lanes && reduced.axes() == 1 && kept.elements() < 16 && reduced.cols() >= 2 * kPart; }
  int64_t parts() const { return (reduced.cols() + kPart - 1) / kPart; }
};

std::vector<bool> reduced_axes(const Problem& p) {
  const int rank = p.input(0).layout.rank();
  const std::vector<int64_t> given = p.values(1);
  std::vector<bool> reduced(size_t(rank), given.empty() && !p.flag("noop_with_empty_axes"));
  for (int64_t axis : given) reduced[size_t(axis < 0 ? axis + rank : axis)] = true;
  return reduced;
}

State make_state(const Problem& p) {
  const Layout &x = p.input(0).layout, &y = p.output().layout;
  const std::vector<bool> reduced = reduced_axes(p);
  const bool keep = p.flag("keepdims");
  Layout kept_x, kept_y, inner;
  for (size_t a = 0, out = 0; a < reduced.size(); ++a) {
    Layout& to = reduced[a] ? inner : kept_x;
    to.shape.push_back(x.shape[a]);
    to.strides.push_back(x.strides[a]);
    if (!reduced[a]) {
      kept_y.shape.push_back(x.shape[a]);
      kept_y.strides.push_back(y.strides[out]);
    }
    out += !reduced[a] || keep;
  }
  const Layout *const kept_layouts[] = {&kept_x, &kept_y}, *const inner_layouts[] = {&inner};
  State s{make_loop_nest(kept_x.shape, kept_layouts, 0), make_loop_nest(inner.shape, inner_layouts, 0), false,
          p.input(0).bytes() > this_cpu().caches.l2, EpiloguePass(p)};
  s.lanes = s.kept.cols() > 1 && s.kept.col_stride(0) == 1 && s.kept.col_stride(1) == 1 &&
            (s.reduced.elements() == 1 || s.reduced.col_stride(0) != 1);
  return s;
}

Support supports(const Problem& p) {
  if (p.input(0).dtype != DType::kF32) return no("{}: this kernel takes f32", name(p.input(0).dtype));
  if (p.has(1) && !p.input(1).constant) return no("the axes are not known before the run");
  const State s = make_state(p);
  if (!s.lanes && s.kept.elements() > 0 && s.reduced.elements() > 1 && s.reduced.col_stride(0) != 1)
    return no("neither what is reduced nor what stays is contiguous");
  return EpiloguePass::check(p);
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const State s = make_state(p);
  // Rows shorter than a few vectors are bound by their ends: about 10 ns each. Lanes go through L1 twice beside x.
  const double ends = s.lanes ? 0 : 10.0 * double(p.output().elements()) / p.threads;
  const double lanes = s.lanes ? 12.0 * double(p.input(0).elements()) / c.read_gb_s[0].at(p.threads, c.cores) : 0;
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads), lanes) + ends + 200;
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) { return std::make_shared<State>(make_state(p)); }

int64_t workspace(const Problem& p, const Tile&) {
  const State s = make_state(p);
  return s.split() ? s.kept.elements() * s.parts() * int64_t(sizeof(double)) : 0;
}

template <Finish kFinish>
double finish(double total, int64_t count) {
  if (kFinish == Finish::kMean) return total / double(count);
  if (kFinish == Finish::kRoot) return std::sqrt(total);
  return total;
}

/// body(offset, n): every row of the reduced nest.
template <class Body>
void for_rows(const LoopNest& nest, Body body) {
  const int64_t cols = nest.cols();
  if (nest.elements() == 0) return;
  const int64_t rows = nest.elements() / cols;
  for (int64_t r = 0; r < rows; ++r) {
    int64_t at = r, offset = 0;
    for (int a = nest.axes() - 2; a >= 0; --a) {
      offset += at % nest.extents[size_t(a)] * nest.strides[0][size_t(a)];
      at /= nest.extents[size_t(a)];
    }
    body(offset, cols);
  }
}

template <ReduceFold kFold, Finish kFinish>
void run_split(const State& s, const float* x, float* y, double* partial, const ThreadPool& pool) {
  const int64_t parts = s.parts(), n = s.reduced.cols();
  int64_t index = 0;
  s.kept.run(ThreadPool(1), 1, [&](const int64_t* offsets, int64_t rows, int64_t cols) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < cols; ++j, ++index) {
        const float* from = x + offsets[0] + i * s.kept.row_stride(0) + j * s.kept.col_stride(0);
        double* own = partial + index * parts;
        parallel(pool, parts, 1, [&](int64_t begin, int64_t end, int) {
          for (int64_t k = begin; k < end; ++k)
            own[k] = reduce_row(from + k * kPart, std::min(kPart, n - k * kPart), kFold, s.far);
        });
        double total = identity_of(kFold);
        for (int64_t k = 0; k < parts; ++k) total = join(kFold, total, own[k]);
        y[offsets[1] + i * s.kept.row_stride(1) + j * s.kept.col_stride(1)] = float(finish<kFinish>(total, n));
      }
    }
  });
}

template <ReduceFold kFold, Finish kFinish>
void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  float* y = static_cast<float*>(buffers.outputs[0]);
  const int64_t count = s.reduced.elements();
  if (s.split()) {
    run_split<kFold, kFinish>(s, x, y, static_cast<double*>(buffers.workspace), pool);
    return s.epilogue.run(buffers, pool);
  }
  const int64_t grain = std::max<int64_t>(1, (32 << 10) / std::max<int64_t>(1, count));
  s.kept.run(
      pool, grain,
      [&](const int64_t* offsets, int64_t rows, int64_t cols) {
        for (int64_t i = 0; i < rows; ++i) {
          const float* from = x + offsets[0] + i * s.kept.row_stride(0);
          float* to = y + offsets[1] + i * s.kept.row_stride(1);
          if (s.lanes) {
            for (int64_t j = 0; j < cols; ++j) to[j] = float(identity_of(kFold));
            const int64_t step = s.reduced.col_stride(0);
            for_rows(s.reduced,
                     [&](int64_t offset, int64_t n) { reduce_lanes(from + offset, step, n, to, cols, kFold, s.far); });
            if (kFinish != Finish::kNone)
              for (int64_t j = 0; j < cols; ++j) to[j] = float(finish<kFinish>(double(to[j]), count));
            continue;
          }
          const int64_t x_step = s.kept.col_stride(0), y_step = s.kept.col_stride(1);
          if (s.reduced.axes() == 1 && count > 0 && count <= kMostShort) {
            reduce_rows(from, x_step, cols, count, to, y_step, kFold, s.far);
            if (kFinish != Finish::kNone)
              for (int64_t j = 0; j < cols; ++j) to[j * y_step] = float(finish<kFinish>(double(to[j * y_step]), count));
            continue;
          }
          for (int64_t j = 0; j < cols; ++j) {
            const float* row = from + j * x_step;
            double total = identity_of(kFold);
            for_rows(s.reduced, [&](int64_t offset, int64_t n) {
              total = join(kFold, total, reduce_row(row + offset, n, kFold, s.far));
            });
            to[j * y_step] = float(finish<kFinish>(total, count));
          }
        }
      },
      s.lanes ? 16 : 1);
  s.epilogue.run(buffers, pool);
}

template <ReduceFold kFold, Finish kFinish = Finish::kNone>
constexpr Kernel reduce(std::string_view name, std::string_view op) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.supports = supports;
  k.estimate = estimate;
  k.workspace = workspace;
  k.prepare = prepare;
  k.run = run<kFold, kFinish>;
  k.version = 2;
  return k;
}

}  // namespace

constinit const Kernel kReduceSumKernel = reduce<ReduceFold::kSum>("cpu.reduce_sum", "ReduceSum");
constinit const Kernel kReduceMeanKernel = reduce<ReduceFold::kSum, Finish::kMean>("cpu.reduce_mean", "ReduceMean");
constinit const Kernel kReduceMaxKernel = reduce<ReduceFold::kMax>("cpu.reduce_max", "ReduceMax");
constinit const Kernel kReduceMinKernel = reduce<ReduceFold::kMin>("cpu.reduce_min", "ReduceMin");
constinit const Kernel kReduceProdKernel = reduce<ReduceFold::kProduct>("cpu.reduce_prod", "ReduceProd");
constinit const Kernel kReduceL1Kernel = reduce<ReduceFold::kSumAbsolute>("cpu.reduce_l1", "ReduceL1");
constinit const Kernel kReduceL2Kernel = reduce<ReduceFold::kSumSquare, Finish::kRoot>("cpu.reduce_l2", "ReduceL2");
constinit const Kernel kReduceSumSquareKernel =
    reduce<ReduceFold::kSumSquare>("cpu.reduce_sum_square", "ReduceSumSquare");

}  // namespace ridgeline::cpu
