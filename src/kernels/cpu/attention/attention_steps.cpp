#include "kernels/cpu/attention/attention_steps.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_steps.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/masked_inl.h"

#include "kernels/cpu/elementwise/block_io-inl.h"
#include "kernels/cpu/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

/// e^x for x <= 0 within 2 ulp near 0 (4 at e^-87: ln 2 in one part), 0 where it would be denormal: such weights say
/// nothing beside a sum of at least 1, and a product with them takes a hundred times as long (37 GFLOP/s became 16
/// where scores were wide apart). NaN stays. Adding 1.5 * 2^23 rounds to an integer in the low bits, with 127 the
/// exponent of the power: 16 instructions a vector, counting the subtraction and the sum, where exp_negative and the
/// same limits were 20. (Tried: 126 for 127 and twice the polynomial, so that the power itself is 0 and nothing is
/// compared: attention gains a point, weights below 1.7e-38 are lost. Degree 5 errs by up to 1.7 ulp by itself.)
HWY_INLINE VF weight(VF x) {
  const F32 d;
  const VF least = splat(-87.3f), magic = splat(12582912.0f + 127), one = splat(1.0f);
  const auto gone = hn::Lt(x, least);
  x = at_least(least, x);
  const VF shifted = hn::MulAdd(x, splat(kLog2E), magic);
  const VF n = hn::Sub(shifted, magic);
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  const VF r = hn::NegMulAdd(n, splat(0.693147181f), x);
#else  // without a fused multiply-add the product has to be exact
  const VF r = hn::NegMulAdd(n, splat(kLn2Low), hn::NegMulAdd(n, splat(kLn2High), x));
#endif
  const VF y = hn::MulAdd(hn::MulAdd(polynomial(r, kExpTail), r, one), r, one);
  const VF power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(I32(), shifted)));
  return hn::IfThenZeroElse(gone, hn::Mul(y, power));
}

float block(float* scores, int64_t begin, int64_t end, int64_t count, RowState* state) {
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d));
  if (end > count) end = count;
  if (begin < 0) begin = 0;
  if (begin > end) begin = end = 0;
  for (int64_t i = 0; i < begin; ++i) scores[i] = 0;
  for (int64_t i = end; i < count; ++i) scores[i] = 0;
  float* s = scores + begin;
  const int64_t visible = end - begin;
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
  if (largest == -__builtin_inff()) {  // nothing seen, where exp(-inf + inf) would be NaN; or NaN, which maxima drop
    for (i = 0; i < visible; ++i) {
      if (s[i] != s[i]) state->sum = s[i];
      s[i] = 0;
    }
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
  const float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3))));
  // From -inf on it is 0, not e^-inf by way of a denormal: an assist of the processor, a quarter of this function's
  // time.
  const float factor = state->largest == largest             ? 1.0f
                       : state->largest == -__builtin_inff() ? 0.0f
                                                             : hn::GetLane(exp_f32(splat(state->largest - largest)));
  state->sum = state->sum * factor + sum;
  state->largest = largest;
  return factor;
}

// s = cap * tanh(s / cap)
void cap_row(float* s, int64_t n, float cap) {
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d));
  const VF c = splat(cap), inverse = splat(1.0f / cap);
  int64_t i = 0;
  for (; i + width <= n; i += width) hn::StoreU(hn::Mul(c, tanh_f32(hn::Mul(inverse, hn::LoadU(d, s + i)))), d, s + i);
  for (; i < n; ++i) s[i] = cap * hn::GetLane(tanh_f32(splat(s[i] / cap)));
}

void mask_row(float* s, int64_t n, DType type, const void* mask, int64_t col) {
  if (type == DType::kBool) {
    const F32 d;
    const hn::Rebind<uint8_t, F32> d8;
    const hn::RebindToUnsigned<F32> d32;
    const int64_t width = int64_t(hn::Lanes(d));
    const uint8_t* m = static_cast<const uint8_t*>(mask);
    int64_t i = 0;
    for (; col == 1 && i + width <= n; i += width) {
      const auto hidden = hn::RebindMask(d, hn::Eq(hn::PromoteTo(d32, hn::LoadU(d8, m + i)), hn::Zero(d32)));
      hn::StoreU(hn::Add(hn::LoadU(d, s + i), hn::IfThenElseZero(hidden, hn::Neg(hn::Inf(d)))), d, s + i);
    }
    for (; i < n; ++i) s[i] += m[i * col] ? 0.0f : -__builtin_inff();
    return;
  }
  float addends[256];
  const int64_t bytes = element_bytes(type);
  for (int64_t first = 0; first < n; first += 256) {
    const int count = int(n - first < 256 ? n - first : 256);
    load_block(type, static_cast<const char*>(mask) + first * col * bytes, col, addends, count);
    for (int i = 0; i < count; ++i) s[first + i] += addends[i];
  }
}

void widen(DType type, const void* from, float* to, int64_t n) { load_block(type, from, 1, to, int(n)); }
void narrow(const float* from, DType type, void* to, int64_t n) {
  constexpr int64_t kMost = 256;  // that store_block takes
  for (int64_t i = 0; i < n; i += kMost)
    store_block(type, from + i, static_cast<char*>(to) + i * element_bytes(type), 1, int(n - i < kMost ? n - i : kMost),
                false);
}

void scale(float* y, int64_t n, float factor) {
  const F32 d;
  const int64_t width = int64_t(hn::Lanes(d));
  const VF f = splat(factor);
  int64_t i = 0;
  for (; i + width <= n; i += width) hn::StoreU(hn::Mul(hn::LoadU(d, y + i), f), d, y + i);
  for (; i < n; ++i) y[i] *= factor;
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {

HWY_EXPORT(block);
HWY_EXPORT(scale);
HWY_EXPORT(cap_row);
HWY_EXPORT(mask_row);
HWY_EXPORT(widen);
HWY_EXPORT(narrow);

float softmax_block(float* scores, int64_t begin, int64_t end, int64_t count, RowState* state) {
  return HWY_DYNAMIC_DISPATCH(block)(scores, begin, end, count, state);
}
void scale_row(float* y, int64_t n, float factor) { HWY_DYNAMIC_DISPATCH(scale)(y, n, factor); }
void cap_scores(float* scores, int64_t n, float cap) { HWY_DYNAMIC_DISPATCH(cap_row)(scores, n, cap); }
void add_mask(float* scores, int64_t n, DType type, const void* mask, int64_t col) {
  HWY_DYNAMIC_DISPATCH(mask_row)(scores, n, type, mask, col);
}
void to_f32(DType type, const void* from, float* to, int64_t n) { HWY_DYNAMIC_DISPATCH(widen)(type, from, to, n); }
void from_f32(const float* from, DType type, void* to, int64_t n) { HWY_DYNAMIC_DISPATCH(narrow)(from, type, to, n); }

}  // namespace ridgeline::cpu
#endif
