#include "kernels/cpu/attention/attention_steps.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_steps.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/masked_inl.h"

#include "kernels/cpu/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

/// e^x for x <= 0, 0 where it would be denormal: such weights say nothing beside a sum of at least 1, and a product
/// with them takes a hundred times as long (37 GFLOP/s became 16 where scores were wide apart). NaN stays.
HWY_INLINE VF weight(VF x) {
  const VF least = splat(-87.3f);
  return hn::IfThenZeroElse(hn::Lt(x, least), exp_negative(at_least(least, x)));
}

float block(float* s, int64_t visible, int64_t count, RowState* state) {
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d));
  if (visible > count) visible = count;
  if (visible < 0) visible = 0;
  const VF least = hn::Neg(hn::Inf(d));
  VF m0 = least, m1 = least;
  int64_t i = 0;
  for (; i + 2 * width <= visible; i += 2 * width) {
    m0 = hn::Max(m0, hn::LoadU(d, s + i));
    m1 = hn::Max(m1, hn::LoadU(d, s + i + width));
  }
  for (; i < visible; i += width) {
    const auto mask = hn::FirstN(d, size_t(visible - i < width ? visible - i : width));
    m0 = hn::Max(m0, hn::IfThenElse(mask, LoadMasked(mask, d, s + i), least));
  }
  const float top = hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
  const float largest = top > state->largest ? top : state->largest;
  if (largest == -__builtin_inff()) {  // nothing seen: exp(-inf + inf) would be NaN
    for (i = 0; i < count; ++i) s[i] = 0;
    return 1;
  }
  const VF around = splat(largest);
  VF sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  for (i = 0; i + 4 * width <= visible; i += 4 * width) {
    const VF a = weight(hn::Sub(hn::LoadU(d, s + i), around));
    const VF b = weight(hn::Sub(hn::LoadU(d, s + i + width), around));
    const VF c = weight(hn::Sub(hn::LoadU(d, s + i + 2 * width), around));
    const VF e = weight(hn::Sub(hn::LoadU(d, s + i + 3 * width), around));
    hn::StoreU(a, d, s + i);
    hn::StoreU(b, d, s + i + width);
    hn::StoreU(c, d, s + i + 2 * width);
    hn::StoreU(e, d, s + i + 3 * width);
    sum0 = hn::Add(sum0, a);
    sum1 = hn::Add(sum1, b);
    sum2 = hn::Add(sum2, c);
    sum3 = hn::Add(sum3, e);
  }
  for (; i < visible; i += width) {
    const auto mask = hn::FirstN(d, size_t(visible - i < width ? visible - i : width));
    const VF a = hn::IfThenElseZero(mask, weight(hn::Sub(LoadMasked(mask, d, s + i), around)));
    hn::BlendedStore(a, mask, d, s + i);
    sum0 = hn::Add(sum0, a);
  }
  for (i = visible; i < count; ++i) s[i] = 0;
  const float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  const float factor = state->largest == largest ? 1.0f : hn::GetLane(exp_f32(splat(state->largest - largest)));
  state->sum = state->sum * factor + sum;
  state->largest = largest;
  return factor;
}

void scale(float* y, int64_t n, float factor) {
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d));
  const VF f = splat(factor);
  int64_t i = 0;
  for (; i + width <= n; i += width) hn::StoreU(hn::Mul(hn::LoadU(d, y + i), f), d, y + i);
  for (; i < n; ++i) y[i] *= factor;
}

void dots(const float* q, const float* k, int64_t k_row, int64_t depth, int64_t count, float factor, float* scores) {
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d)), end = depth / width * width;
  const auto mask = hn::FirstN(d, size_t(depth - end));
  auto one = [&](const float* row) HWY_ATTR {
    VF sum = hn::Zero(d);
    for (int64_t j = 0; j < end; j += width) sum = hn::MulAdd(hn::LoadU(d, q + j), hn::LoadU(d, row + j), sum);
    if (end < depth) sum = hn::MulAdd(LoadMasked(mask, d, q + end), LoadMasked(mask, d, row + end), sum);
    return sum;
  };
  for (int64_t t = 0; t < count; ++t) scores[t] = factor * hn::GetLane(hn::SumOfLanes(d, one(k + t * k_row)));
}

void weighted(const float* w, const float* v, int64_t v_row, int64_t depth, int64_t count, float* y) {
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d));
  for (int64_t j = 0; j < depth; j += width) {
    const auto mask = hn::FirstN(d, size_t(depth - j < width ? depth - j : width));
    VF a = hn::Zero(d), b = a;
    int64_t t = 0;
    for (; t + 2 <= count; t += 2) {
      a = hn::MulAdd(splat(w[t]), LoadMasked(mask, d, v + t * v_row + j), a);
      b = hn::MulAdd(splat(w[t + 1]), LoadMasked(mask, d, v + (t + 1) * v_row + j), b);
    }
    if (t < count) a = hn::MulAdd(splat(w[t]), LoadMasked(mask, d, v + t * v_row + j), a);
    hn::BlendedStore(hn::Add(a, b), mask, d, y + j);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {

HWY_EXPORT(block);
HWY_EXPORT(scale);
HWY_EXPORT(dots);
HWY_EXPORT(weighted);

float softmax_block(float* scores, int64_t visible, int64_t count, RowState* state) {
  return HWY_DYNAMIC_DISPATCH(block)(scores, visible, count, state);
}
void scale_row(float* y, int64_t n, float factor) { HWY_DYNAMIC_DISPATCH(scale)(y, n, factor); }
void dot_keys(const float* q, const float* k, int64_t k_row, int64_t depth, int64_t count, float scale, float* scores) {
  HWY_DYNAMIC_DISPATCH(dots)(q, k, k_row, depth, count, scale, scores);
}
void sum_values(const float* weights, const float* v, int64_t v_row, int64_t depth, int64_t count, float* y) {
  HWY_DYNAMIC_DISPATCH(weighted)(weights, v, v_row, depth, count, y);
}

}  // namespace ridgeline::cpu
#endif
