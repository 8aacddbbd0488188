#include "kernels/cpu/normalize/row_steps.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/normalize/row_steps.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/masked_inl.h"

#include <type_traits>

#include "kernels/cpu/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

/// body(index, lanes): whole vectors, four at a time first so that sums run in four chains; then what is left.
template <class Body>
HWY_INLINE void for_vectors(int64_t n, Body body) {
  const int64_t lanes = int64_t(hn::Lanes(F32()));
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    body(0, i);
    body(1, i + lanes);
    body(2, i + 2 * lanes);
    body(3, i + 3 * lanes);
  }
  for (; i + lanes <= n; i += lanes) body(0, i);
}
HWY_INLINE int64_t whole(int64_t n) {
  const int64_t lanes = int64_t(hn::Lanes(F32()));
  return n / lanes * lanes;
}

/// Sum over i of f(i), f giving a vector, of the whole vectors. For every four of them the next line at `ahead` is
/// asked for (null: none).
template <class F>
HWY_INLINE float sum_of(int64_t n, F f, const float* ahead = nullptr) {
  const F32 d;
  VF s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    if (ahead) hwy::Prefetch(ahead + i / 4);
    s0 = hn::Add(s0, f(i));
    s1 = hn::Add(s1, f(i + lanes));
    s2 = hn::Add(s2, f(i + 2 * lanes));
    s3 = hn::Add(s3, f(i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::Add(s0, f(i));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

HWY_INLINE auto tail_mask(int64_t n) { return hn::FirstN(F32(), size_t(n - whole(n))); }

float largest(const float* x, int64_t n) {
  const F32 d;
  const VF least = hn::Neg(hn::Inf(d));
  VF m0 = least, m1 = least, m2 = least, m3 = least;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    m0 = hn::Max(m0, hn::LoadU(d, x + i));
    m1 = hn::Max(m1, hn::LoadU(d, x + i + lanes));
    m2 = hn::Max(m2, hn::LoadU(d, x + i + 2 * lanes));
    m3 = hn::Max(m3, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) m0 = hn::Max(m0, hn::LoadU(d, x + i));
  if (i < n) {
    const auto mask = tail_mask(n);
    m1 = hn::Max(m1, hn::IfThenElse(mask, LoadMasked(mask, d, x + i), least));
  }
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(m0, m1), hn::Max(m2, m3))));
}

/// to[i] = f(i) for the whole vectors, past the caches if `stream`.
template <class F>
HWY_INLINE void write_all(float* to, int64_t end, bool stream, F f) {
  const F32 d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  if (stream)
    for (int64_t i = 0; i < end; i += lanes) hn::Stream(f(i), d, to + i);
  else
    for (int64_t i = 0; i < end; i += lanes) hn::StoreU(f(i), d, to + i);
}

// NaN anywhere makes the sum NaN, hence the row, whatever the maximum did with it.
void softmax(const float* x, float* y, int64_t n, bool logarithm, int64_t ahead, bool wants_stream) {
  const F32 d;
  if (n == 0) return;
  // What goes past the caches keeps its exponentials in a buffer, and the row that comes is asked for beside them:
  // neither memory nor arithmetic waits for the other.
  constexpr int64_t kMostKept = 16 << 10;
  HWY_ALIGN float kept[kMostKept];
  const bool stream = wants_stream && (reinterpret_cast<uintptr_t>(y) & 63) == 0 && n <= kMostKept;
  float* const e_at = stream ? kept : y;
  const float* const coming = ahead ? x + ahead : nullptr;
  const VF top = splat(largest(x, n));
  const int64_t end = whole(n);
  const auto mask = tail_mask(n);
  float sum = sum_of(n, [&](int64_t i) HWY_ATTR {
    if (coming) hwy::Prefetch(coming + i);
    const VF e = exp_negative(hn::Sub(hn::LoadU(d, x + i), top));
    if (!logarithm) hn::StoreU(e, d, e_at + i);
    return e;
  });
  if (end < n) {
    const VF e = hn::IfThenElseZero(mask, exp_negative(hn::Sub(LoadMasked(mask, d, x + end), top)));
    if (!logarithm) hn::BlendedStore(e, mask, d, e_at + end);
    sum += hn::GetLane(hn::SumOfLanes(d, e));
  }
  if (logarithm) {
    const VF shift = splat(__builtin_logf(sum));
    write_all(y, end, stream, [&](int64_t i) HWY_ATTR { return hn::Sub(hn::Sub(hn::LoadU(d, x + i), top), shift); });
    if (end < n) hn::BlendedStore(hn::Sub(hn::Sub(LoadMasked(mask, d, x + end), top), shift), mask, d, y + end);
  } else {
    const VF inverse = splat(1.0f / sum);
    write_all(y, end, stream, [&](int64_t i) HWY_ATTR { return hn::Mul(hn::LoadU(d, e_at + i), inverse); });
    if (end < n) hn::BlendedStore(hn::Mul(LoadMasked(mask, d, e_at + end), inverse), mask, d, y + end);
  }
}

/// One vector of lanes (those of `mask`), three walks along the axis.
template <class M>
HWY_INLINE void softmax_vector(const float* x, int64_t x_step, float* y, int64_t y_step, int64_t extent, M mask,
                               bool logarithm) {
  const F32 d;
  VF top = LoadMasked(mask, d, x);
  for (int64_t k = 1; k < extent; ++k) top = hn::Max(top, LoadMasked(mask, d, x + k * x_step));
  VF sum = hn::Zero(d);
  for (int64_t k = 0; k < extent; ++k) {
    const VF e = exp_negative(hn::Sub(LoadMasked(mask, d, x + k * x_step), top));
    sum = hn::Add(sum, e);
    if (!logarithm) hn::BlendedStore(e, mask, d, y + k * y_step);
  }
  const VF factor = logarithm ? log_f32(sum) : hn::Div(splat(1.0f), sum);
  for (int64_t k = 0; k < extent; ++k) {
    float* to = y + k * y_step;
    const VF v = logarithm ? hn::Sub(hn::Sub(LoadMasked(mask, d, x + k * x_step), top), factor)
                           : hn::Mul(LoadMasked(mask, d, to), factor);
    hn::BlendedStore(v, mask, d, to);
  }
}

void softmax_columns(const float* x, int64_t x_step, float* y, int64_t y_step, int64_t extent, int64_t lanes,
                     bool logarithm) {
  const F32 d;
  if (extent == 0) return;
  const int64_t width = int64_t(hn::Lanes(d));
  for (int64_t j = 0; j < lanes; j += width) {
    const int64_t count = lanes - j < width ? lanes - j : width;
    softmax_vector(x + j, x_step, y + j, y_step, extent, hn::FirstN(d, size_t(count)), logarithm);
  }
}

/// Mean of x, and the sum of squared differences from it, in one walk: pieces of 4 KiB, joined as Chan, Golub and
/// LeVeque do, and in each the differences from the mean of its first vectors. That lies within four standard
/// deviations of the piece's own (64 of 1024 numbers cannot be farther off), so what is subtracted at the end is at
/// most 17 times what stays. (Walked twice from L2, 4096 rows of 16 KiB took 6.8 ms, 5.8 so, a copy 5.2.)
void spread(const float* x, int64_t n, const float* ahead, float& mean, float& squares) {
  const F32 d;
  constexpr int64_t kPiece = 1024;
  const int64_t lanes = int64_t(hn::Lanes(d));
  double so_far = 0, sum_of_squares = 0;
  for (int64_t at = 0; at < n; at += kPiece) {
    const int64_t count = n - at < kPiece ? n - at : kPiece, end = whole(count);
    const float* p = x + at;
    const float* line = ahead ? ahead + at / 4 : nullptr;
    const auto mask = tail_mask(count);
    float near;
    if (count >= 4 * lanes) {
      const VF a = hn::Add(hn::LoadU(d, p), hn::LoadU(d, p + lanes));
      const VF b = hn::Add(hn::LoadU(d, p + 2 * lanes), hn::LoadU(d, p + 3 * lanes));
      near = hn::GetLane(hn::SumOfLanes(d, hn::Add(a, b))) / float(4 * lanes);
    } else {
      float total = sum_of(count, [&](int64_t i) HWY_ATTR { return hn::LoadU(d, p + i); });
      if (end < count) total += hn::GetLane(hn::SumOfLanes(d, LoadMasked(mask, d, p + end)));
      near = total / float(count);
    }
    const VF k = splat(near);
    VF s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, q0 = s0, q1 = s0, q2 = s0, q3 = s0;
    auto take = [&](VF v, VF& s, VF& q) HWY_ATTR {
      s = hn::Add(s, v);
      q = hn::MulAdd(v, v, q);
    };
    int64_t i = 0;
    for (; i + 4 * lanes <= count; i += 4 * lanes) {
      if (line) hwy::Prefetch(line + i / 4);
      take(hn::Sub(hn::LoadU(d, p + i), k), s0, q0);
      take(hn::Sub(hn::LoadU(d, p + i + lanes), k), s1, q1);
      take(hn::Sub(hn::LoadU(d, p + i + 2 * lanes), k), s2, q2);
      take(hn::Sub(hn::LoadU(d, p + i + 3 * lanes), k), s3, q3);
    }
    for (; i < end; i += lanes) take(hn::Sub(hn::LoadU(d, p + i), k), s0, q0);
    if (end < count) take(hn::IfThenElseZero(mask, hn::Sub(LoadMasked(mask, d, p + end), k)), s1, q1);
    const double off =
        double(hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))))) / double(count);
    const double about = double(hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(q0, q1), hn::Add(q2, q3)))));
    const double own = double(near) + off, part = about - off * off * double(count);
    const double apart = own - so_far, share = double(count) / double(at + count);
    sum_of_squares += (part > 0 ? part : 0) + apart * apart * double(at) * share;
    so_far += apart * share;
  }
  mean = float(so_far);
  squares = float(sum_of_squares);
}

float sum_of_squares(const float* x, int64_t n, const float* ahead) {
  const F32 d;
  const int64_t end = whole(n);
  float total = sum_of(
      n,
      [&](int64_t i) HWY_ATTR {
        const VF v = hn::LoadU(d, x + i);
        return hn::Mul(v, v);
      },
      ahead);
  if (end < n) {
    const VF v = LoadMasked(tail_mask(n), d, x + end);
    total += hn::GetLane(hn::SumOfLanes(d, hn::Mul(v, v)));
  }
  return total;
}

void norm(const NormRow& r) {
  const F32 d;
  const int64_t n = r.n, end = whole(n);
  if (n == 0) return;
  const auto mask = tail_mask(n);
  const float* s = r.x;
  if (r.residual) {  // the sum is stored, and read from L1 from here on
    s = r.sum;
    for_vectors(n, [&](int, int64_t i) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, r.x + i), hn::LoadU(d, r.residual + i)), d, r.sum + i);
    });
    if (end < n)
      hn::BlendedStore(hn::Add(LoadMasked(mask, d, r.x + end), LoadMasked(mask, d, r.residual + end)), mask, d,
                       r.sum + end);
  }
  float mean = 0, squares = 0;
  // The row that comes is asked for while this one is summed up (a quarter of it) and written (the rest): the sums
  // would wait for it otherwise, and the memory for them.
  const float* const next = r.ahead ? r.x + r.ahead : nullptr;
  if (r.centered)
    spread(s, n, next, mean, squares);
  else
    squares = sum_of_squares(s, n, next);
  const VF m = splat(mean);
  const float inverse = 1.0f / __builtin_sqrtf(squares / float(n) + r.epsilon);
  if (r.mean) *r.mean = mean;
  if (r.inverse) *r.inverse = inverse;
  const VF scale_one = splat(r.scale && r.scale_stride == 0 ? *r.scale : 1.0f);
  const VF bias_one = splat(r.bias && r.bias_stride == 0 ? *r.bias : 0.0f);
  const float* scale = r.scale && r.scale_stride ? r.scale : nullptr;
  const float* bias = r.bias && r.bias_stride ? r.bias : nullptr;
  const VF factor = splat(inverse);
  auto finish = [&](VF v, VF a, VF b) HWY_ATTR { return hn::MulAdd(hn::Mul(hn::Sub(v, m), factor), a, b); };
  auto write = [&](auto streams, auto prefetches, auto scaled, auto biased, int64_t begin, int64_t stop) HWY_ATTR {
    const float *const from = s, *const a_at = scale, *const b_at = bias, *const coming = next;
    float* const to = r.y;
    const int64_t lanes = int64_t(hn::Lanes(d));
    // A vector and a line a turn: with four of each, grouped by the compiler, 6.7 ms became 5.8. (Lines of y asked for
    // as well, where they are not streamed: 128x768 64.8 us for 65.2. The sums of the next row beside this one's
    // stores, rows of 16 KiB: 18.4 GB/s for 17.3; not built in.)
    for (int64_t i = begin; i < stop; i += lanes) {
      if constexpr (prefetches) hwy::Prefetch(coming + i);
      VF a = scale_one, b = bias_one;
      if constexpr (scaled) a = hn::LoadU(d, a_at + i);
      if constexpr (biased) b = hn::LoadU(d, b_at + i);
      const VF v = hn::MulAdd(hn::Mul(hn::Sub(hn::LoadU(d, from + i), m), factor), a, b);
      if constexpr (streams)
        hn::Stream(v, d, to + i);
      else
        hn::StoreU(v, d, to + i);
    }
  };
  const std::true_type yes;
  const std::false_type no;
  auto write_with = [&](auto scaled, auto biased) HWY_ATTR {
    const bool stream = r.stream && (reinterpret_cast<uintptr_t>(r.y) & 63) == 0;
    const int64_t asked = next ? n / 4 / 16 * 16 : end;
    if (stream) {
      write(yes, no, scaled, biased, 0, asked);
      write(yes, yes, scaled, biased, asked, end);
    } else {
      write(no, no, scaled, biased, 0, asked);
      write(no, yes, scaled, biased, asked, end);
    }
  };
  if (scale && bias)
    write_with(yes, yes);
  else if (scale)
    write_with(yes, no);
  else if (bias)
    write_with(no, yes);
  else
    write_with(no, no);
  if (end == n) return;
  const VF a = scale ? LoadMasked(mask, d, scale + end) : scale_one,
           b = bias ? LoadMasked(mask, d, bias + end) : bias_one;
  hn::BlendedStore(finish(LoadMasked(mask, d, s + end), a, b), mask, d, r.y + end);
}

/// Long blocks in pieces, so that a sum of a million numbers loses no more than one of a few thousand.
template <class F>
double pieces(int64_t n, F sum) {
  constexpr int64_t kPiece = 4096;
  double total = 0;
  for (int64_t i = 0; i < n; i += kPiece) total += double(sum(i, n - i < kPiece ? n - i : kPiece));
  return total;
}

void block_moments(const float* x, int64_t n, float* mean, float* variance) {
  const F32 d;
  const double total = pieces(n, [&](int64_t at, int64_t count) HWY_ATTR {
    const float* p = x + at;
    float s = sum_of(count, [&](int64_t i) HWY_ATTR { return hn::LoadU(d, p + i); });
    const int64_t end = whole(count);
    if (end < count) s += hn::GetLane(hn::SumOfLanes(d, LoadMasked(tail_mask(count), d, p + end)));
    return s;
  });
  *mean = float(total / double(n));
  const VF m = splat(*mean);
  const double squares = pieces(n, [&](int64_t at, int64_t count) HWY_ATTR {
    const float* p = x + at;
    float s = sum_of(count, [&](int64_t i) HWY_ATTR {
      const VF v = hn::Sub(hn::LoadU(d, p + i), m);
      return hn::Mul(v, v);
    });
    const int64_t end = whole(count);
    if (end < count) {
      const auto mask = tail_mask(count);
      const VF v = hn::IfThenElseZero(mask, hn::Sub(LoadMasked(mask, d, p + end), m));
      s += hn::GetLane(hn::SumOfLanes(d, hn::Mul(v, v)));
    }
    return s;
  });
  *variance = float(squares / double(n));
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {

HWY_EXPORT(softmax);
HWY_EXPORT(softmax_columns);
HWY_EXPORT(norm);
HWY_EXPORT(block_moments);

void softmax_row(const float* x, float* y, int64_t n, bool logarithm, int64_t ahead, bool stream) {
  HWY_DYNAMIC_DISPATCH(softmax)(x, y, n, logarithm, ahead, stream);
}
void softmax_lanes(const float* x, int64_t x_step, float* y, int64_t y_step, int64_t extent, int64_t lanes,
                   bool logarithm) {
  HWY_DYNAMIC_DISPATCH(softmax_columns)(x, x_step, y, y_step, extent, lanes, logarithm);
}
void flush_rows() { hwy::FlushStream(); }
void norm_row(const NormRow& row) { HWY_DYNAMIC_DISPATCH(norm)(row); }
void moments(const float* x, int64_t n, float* mean, float* variance) {
  HWY_DYNAMIC_DISPATCH(block_moments)(x, n, mean, variance);
}

}  // namespace ridgeline::cpu
#endif
