#include "kernels/cpu/reduce/reduce_steps.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/reduce/reduce_steps.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/masked_inl.h"

#include <cmath>

#include "kernels/cpu/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

/// One fold as the vector loops want it: `each` maps an element, `two` joins; NaN stays in both.
template <ReduceFold kFold>
struct Fold {
  static HWY_INLINE VF start() {
    if (kFold == ReduceFold::kMax) return hn::Neg(hn::Inf(F32()));
    if (kFold == ReduceFold::kMin) return hn::Inf(F32());
    return kFold == ReduceFold::kProduct ? splat(1.0f) : hn::Zero(F32());
  }
  static HWY_INLINE VF each(VF x) {
    if (kFold == ReduceFold::kSumAbsolute) return hn::Abs(x);
    return kFold == ReduceFold::kSumSquare ? hn::Mul(x, x) : x;
  }
  static HWY_INLINE VF two(VF a, VF b) {
    if (kFold == ReduceFold::kMax) return max_nan(a, b);
    if (kFold == ReduceFold::kMin) return min_nan(a, b);
    return kFold == ReduceFold::kProduct ? hn::Mul(a, b) : hn::Add(a, b);
  }
};

/// How far ahead of the loads lines are asked for, in floats: into L1, and of rows before that into L2.
constexpr int64_t kNear = 2048, kFar = 16384;

/// Of whole lines that come from memory, a line a turn and in one chain: what waits for the chain keeps the loads from
/// overtaking the requests. 4,096 rows of 16 KiB, one thread, GB/s in one run: four lines a turn in four chains 13.3
/// (asked for 8 KiB ahead), 14.0 (in two places), one line a turn in four chains 16.1, in one 17.4; one place ahead
/// instead of two 15.5; 4 and 32 KiB ahead 1 to 3 % less than 8 and 64. The chain ends each 4 KiB, so that the sum is
/// as exact as four chains'.
template <ReduceFold kFold>
HWY_INLINE VF far_lines(const float* x, int64_t n) {
  using F = Fold<kFold>;
  const F32 d;
  constexpr int64_t kLine = 16, kChain = 1024;
  const int64_t width = int64_t(hn::Lanes(d));
  VF total = F::start();
  for (int64_t at = 0; at < n;) {
    const int64_t end = n - at < kChain ? n : at + kChain;
    VF a = F::start();
    for (; at < end; at += kLine) {
      __builtin_prefetch(x + at + kFar, 0, 2);
      hwy::Prefetch(x + at + kNear);
      for (int64_t k = 0; k < kLine; k += width) a = F::two(a, F::each(hn::LoadU(d, x + at + k)));
    }
    total = F::two(total, a);
  }
  return total;
}

template <ReduceFold kFold>
float piece(const float* x, int64_t n, bool far) {
  using F = Fold<kFold>;
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d));
  VF a = F::start(), b = a, c = a, e = a;
  int64_t i = 0;
  if (far) {
    i = n / 16 * 16;
    b = far_lines<kFold>(x, i);
  }
  for (; i + 4 * width <= n; i += 4 * width) {
    a = F::two(a, F::each(hn::LoadU(d, x + i)));
    b = F::two(b, F::each(hn::LoadU(d, x + i + width)));
    c = F::two(c, F::each(hn::LoadU(d, x + i + 2 * width)));
    e = F::two(e, F::each(hn::LoadU(d, x + i + 3 * width)));
  }
  for (; i < n; i += width) {
    const auto mask = hn::FirstN(d, size_t(n - i < width ? n - i : width));
    a = F::two(a, hn::IfThenElse(mask, F::each(LoadMasked(mask, d, x + i)), F::start()));
  }
  a = F::two(F::two(a, b), F::two(c, e));
  if (kFold == ReduceFold::kSum || kFold == ReduceFold::kSumAbsolute || kFold == ReduceFold::kSumSquare)
    return hn::GetLane(hn::SumOfLanes(d, a));
  HWY_ALIGN float lanes[HWY_MAX_BYTES / 4];
  hn::Store(a, d, lanes);
  VF total = splat(lanes[0]);
  for (int64_t k = 1; k < width; ++k) total = F::two(total, splat(lanes[k]));
  return hn::GetLane(total);
}

template <ReduceFold kFold>
void lanes_of(const float* x, int64_t step, int64_t n, float* y, int64_t lanes, bool far) {
  using F = Fold<kFold>;
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d));
  // Rows in blocks: sums of 128 rows are kept apart and joined, so that the error grows with n / 128. 4,096 lanes of
  // them stay in L1, and x is one stream.
  constexpr int64_t kRows = 128, kLanes = 4096;
  HWY_ALIGN float block[kLanes];
  for (int64_t j0 = 0; j0 < lanes; j0 += kLanes) {
    const int64_t count = lanes - j0 < kLanes ? lanes - j0 : kLanes, end = count / width * width;
    const auto mask = hn::FirstN(d, size_t(count - end));
    for (int64_t k0 = 0; k0 < n; k0 += kRows) {
      const int64_t k1 = k0 + kRows < n ? k0 + kRows : n;
      for (int64_t j = 0; j < count; j += width) hn::Store(F::start(), d, block + j);
      for (int64_t k = k0; k < k1; ++k) {
        const float* p = x + k * step + j0;
        for (int64_t j = 0; j < end; j += width) {
          if (far) hwy::Prefetch(p + j + kNear);
          hn::Store(F::two(hn::Load(d, block + j), F::each(hn::LoadU(d, p + j))), d, block + j);
        }
        if (end < count)
          hn::Store(F::two(hn::Load(d, block + end), F::each(LoadMasked(mask, d, p + end))), d, block + end);
      }
      for (int64_t j = 0; j < end; j += width)
        hn::StoreU(F::two(hn::LoadU(d, y + j0 + j), hn::Load(d, block + j)), d, y + j0 + j);
      if (end < count)
        hn::BlendedStore(F::two(LoadMasked(mask, d, y + j0 + end), hn::Load(d, block + end)), mask, d, y + j0 + end);
    }
  }
}

template <ReduceFold kFold>
struct Folds {
  static float one(const float* x, int64_t n, bool far) { return piece<kFold>(x, n, far); }
  static void rows(const float* x, int64_t x_step, int64_t rows, int64_t n, float* y, int64_t y_step, bool far) {
    for (int64_t r = 0; r < rows; ++r) y[r * y_step] = piece<kFold>(x + r * x_step, n, far);
  }
  static void lanes(const float* x, int64_t step, int64_t n, float* y, int64_t lanes, bool far) {
    lanes_of<kFold>(x, step, n, y, lanes, far);
  }
};

/// call(Folds<fold>())
template <class Call>
HWY_INLINE auto with_fold(int fold, Call call) {
  switch (ReduceFold(fold)) {
    case ReduceFold::kSum:
      return call(Folds<ReduceFold::kSum>());
    case ReduceFold::kSumAbsolute:
      return call(Folds<ReduceFold::kSumAbsolute>());
    case ReduceFold::kSumSquare:
      return call(Folds<ReduceFold::kSumSquare>());
    case ReduceFold::kMax:
      return call(Folds<ReduceFold::kMax>());
    case ReduceFold::kMin:
      return call(Folds<ReduceFold::kMin>());
    default:
      return call(Folds<ReduceFold::kProduct>());
  }
}

float fold_piece(const float* x, int64_t n, int fold, bool far) {
  return with_fold(fold, [&](auto f) { return f.one(x, n, far); });
}
void fold_rows(const float* x, int64_t x_step, int64_t rows, int64_t n, float* y, int64_t y_step, int fold, bool far) {
  with_fold(fold, [&](auto f) { f.rows(x, x_step, rows, n, y, y_step, far); });
}
void fold_lanes(const float* x, int64_t step, int64_t n, float* y, int64_t lanes, int fold, bool far) {
  with_fold(fold, [&](auto f) { f.lanes(x, step, n, y, lanes, far); });
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {

HWY_EXPORT(fold_piece);
HWY_EXPORT(fold_lanes);
HWY_EXPORT(fold_rows);

double identity_of(ReduceFold fold) {
  if (fold == ReduceFold::kMax) return -HUGE_VAL;
  if (fold == ReduceFold::kMin) return HUGE_VAL;
  return fold == ReduceFold::kProduct ? 1 : 0;
}

double join(ReduceFold fold, double a, double b) {
  if (fold == ReduceFold::kMax) return b > a || std::isnan(b) ? b : a;
  if (fold == ReduceFold::kMin) return b < a || std::isnan(b) ? b : a;
  return fold == ReduceFold::kProduct ? a * b : a + b;
}

double reduce_row(const float* x, int64_t n, ReduceFold fold, bool far) {
  double total = identity_of(fold);  // pieces are joined in double
  for (int64_t i = 0; i < n; i += kMostShort) {
    const int64_t count = n - i < kMostShort ? n - i : kMostShort;
    total = join(fold, total, double(HWY_DYNAMIC_DISPATCH(fold_piece)(x + i, count, int(fold), far)));
  }
  return total;
}

void reduce_rows(const float* x, int64_t x_step, int64_t rows, int64_t n, float* y, int64_t y_step, ReduceFold fold,
                 bool far) {
  HWY_DYNAMIC_DISPATCH(fold_rows)(x, x_step, rows, n, y, y_step, int(fold), far);
}

void reduce_lanes(const float* x, int64_t step, int64_t n, float* y, int64_t lanes, ReduceFold fold, bool far) {
  HWY_DYNAMIC_DISPATCH(fold_lanes)(x, step, n, y, lanes, int(fold), far);
}

}  // namespace ridgeline::cpu
#endif
