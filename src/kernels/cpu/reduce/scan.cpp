// cpu.cum_sum, cpu.cum_prod: running folds along one axis. Floats are folded in double, which costs nothing beside the
// memory; integers wrap. Where the axis is the contiguous one, several rows go side by side, since each element waits
// for the one before it; elsewhere a strip of columns does.
#include <algorithm>
#include <utility>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/reduce/scan_kernels.h"

namespace ridgeline::cpu {

namespace {

constexpr int64_t kRows = 8, kColumns = 32;

struct Sum {
  static constexpr int kIdentity = 0;
  template <typename A>
  static A join(A a, A b) {
    return a + b;
  }
};
struct Product {
  static constexpr int kIdentity = 1;
  template <typename A>
  static A join(A a, A b) {
    return a * b;
  }
};

Support supports(const Problem& p) {
  const DType dtype = p.input(0).dtype;
  if (info(dtype).bits < 32) return no("{}: this kernel takes numbers of four and eight bytes", name(dtype));
  if (!p.input(0).layout.is_row_major() || !p.output().layout.is_row_major()) return no("an operand is not row-major");
  if (p.has_epilogue()) return no("an epilogue on running results");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  return std::max(c.stream_ns(p.read_bytes(), p.write_bytes(), p.threads),
                  0.8 * double(p.output().elements()) / p.threads) +
         200;
}

/// Where the walk begins and which way it goes.
struct Walk {
  int64_t extent, first, step;
  bool exclusive;
};

/// kLanes running results side by side, `lane` elements apart.
template <typename T, typename A, class F, int64_t kLanes, bool kExclusive>
void scan_as(const T* __restrict x, T* __restrict y, int64_t apart, const Walk& w) {
  const int64_t lane = kLanes == kColumns ? 1 : apart;  // columns are neighbours, which the compiler is to know
  A total[kLanes];
  for (A& t : total) t = A(F::kIdentity);
  for (int64_t k = 0, at = w.first; k < w.extent; ++k, at += w.step) {
    for (int64_t j = 0; j < kLanes; ++j) {
      const A before = std::exchange(total[j], F::join(total[j], A(x[at + j * lane])));
      y[at + j * lane] = T(kExclusive ? before : total[j]);
    }
  }
}
template <typename T, typename A, class F, int64_t kLanes>
void scan_lanes(const T* x, T* y, int64_t lane, const Walk& w) {
  const auto as = w.exclusive ? scan_as<T, A, F, kLanes, true> : scan_as<T, A, F, kLanes, false>;
  as(x, y, lane, w);
}

template <typename T, typename A, class F>
void scan(const T* x, T* y, int64_t outer, int64_t inner, const Walk& w, const ThreadPool& pool) {
  const int64_t row = w.extent * inner;
  if (inner == 1) {
    parallel(pool, outer, std::max<int64_t>(kRows, (16 << 10) / row), [&](int64_t begin, int64_t end, int) {
      for (; begin + kRows <= end; begin += kRows) scan_lanes<T, A, F, kRows>(x + begin * row, y + begin * row, row, w);
      for (; begin < end; ++begin) scan_lanes<T, A, F, 1>(x + begin * row, y + begin * row, row, w);
    });
    return;
  }
  const int64_t strips = (inner + kColumns - 1) / kColumns;
  parallel(pool, outer * strips, std::max<int64_t>(1, 512 / w.extent), [&](int64_t begin, int64_t end, int) {
    for (; begin < end; ++begin) {
      const int64_t first = begin % strips * kColumns, at = begin / strips * row + first;
      if (first + kColumns <= inner) {
        scan_lanes<T, A, F, kColumns>(x + at, y + at, 1, w);
        continue;
      }
      for (int64_t j = 0; first + j < inner; ++j) scan_lanes<T, A, F, 1>(x + at + j, y + at + j, 1, w);
    }
  });
}

template <class F>
void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Problem& p = call.problem;
  const Extents& shape = p.input(0).shape();
  const int64_t rank = int64_t(shape.size());
  const int64_t given = p.input(1).dtype == DType::kI64 ? *static_cast<const int64_t*>(buffers.inputs[1])
                                                        : *static_cast<const int32_t*>(buffers.inputs[1]);
  if (given < -rank || given >= rank)
    fail(ErrorCode::kBadInput, "{}: axis {} is out of range for rank {}", p.op->name, given, rank);
  const size_t axis = size_t(given < 0 ? given + rank : given);
  const int64_t outer = element_count(std::span(shape).first(axis)), extent = shape[axis],
                inner = element_count(std::span(shape).subspan(axis + 1));
  if (outer * extent * inner == 0) return;
  const bool reverse = p.flag("reverse");
  const Walk w{extent, reverse ? (extent - 1) * inner : 0, reverse ? -inner : inner, p.flag("exclusive")};
  const auto as = [&]<typename T, typename A>(T, A) {
    scan<T, A, F>(static_cast<const T*>(buffers.inputs[0]), static_cast<T*>(buffers.outputs[0]), outer, inner, w, pool);
  };
  if (p.input(0).dtype == DType::kF32)
    as(float(), double());
  else if (p.input(0).dtype == DType::kF64)
    as(double(), double());
  else if (info(p.input(0).dtype).bits == 32)
    as(uint32_t(), uint32_t());
  else
    as(uint64_t(), uint64_t());
}

constexpr Kernel scan_kernel(std::string_view name, std::string_view op,
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

constinit const Kernel kCumSumKernel = scan_kernel("cpu.cum_sum", "CumSum", run<Sum>);
constinit const Kernel kCumProdKernel = scan_kernel("cpu.cum_prod", "CumProd", run<Product>);

}  // namespace ridgeline::cpu
