// Sine, cosine and powers, whose rare arguments go one lane at a time. Included once per target.
#if defined(RIDGELINE_VECTOR_PERIODIC_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_VECTOR_PERIODIC_INL_H
#undef RIDGELINE_VECTOR_PERIODIC_INL_H
#else
#define RIDGELINE_VECTOR_PERIODIC_INL_H
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>

#include "kernels/cpu/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

// (sin r / r - 1) / r^2 and (cos r - 1 + r^2 / 2) / r^4 in r^2, |r| <= pi / 4.
constexpr float kSinTail[] = {-1.6666667e-01f, 8.3333785e-03f, -1.9852571e-04f, 2.8265138e-06f};
constexpr float kCosTail[] = {4.1666646e-02f, -1.3887298e-03f, 2.4430088e-05f};

/// One scalar function on the lanes of a vector that `mask` has (rare arguments).
template <class M>
HWY_INLINE VF patch_lanes(VF y, M mask, VF a, VF b, float (*f)(float, float)) {
  if (HWY_LIKELY(hn::AllFalse(F32(), mask))) return y;
  const F32 d;
  HWY_ALIGN float lanes[4][HWY_MAX_BYTES / sizeof(float)];
  hn::Store(y, d, lanes[0]);
  hn::Store(a, d, lanes[1]);
  hn::Store(b, d, lanes[2]);
  hn::Store(hn::IfThenElseZero(mask, splat(1.0f)), d, lanes[3]);
  for (size_t i = 0; i < hn::Lanes(d); ++i)
    if (lanes[3][i] != 0) lanes[0][i] = f(lanes[1][i], lanes[2][i]);
  return hn::Load(d, lanes[0]);
}

#if HWY_TARGET != HWY_SCALAR
/// x mod pi / 2 in double, where n pi / 2 loses nothing for |x| < 1e5: r and the quadrant.
HWY_INLINE VF reduce_quadrant(VF x, hn::Vec<I32>& quadrant) {
  const F32 d;
  const hn::ScalableTag<double> dd;
  const hn::Half<F32> dh;
  const VF n = hn::Round(hn::Mul(x, splat(0.63661977f)));
  quadrant = hn::ConvertTo(I32(), n);
  const auto high = hn::Set(dd, -1.57079632673412561417), low = hn::Set(dd, -6.07710050650619224932e-11);
  auto reduce = [&](auto xh, auto nh) HWY_ATTR {
    const auto wide = hn::PromoteTo(dd, nh);
    return hn::DemoteTo(dh, hn::MulAdd(wide, low, hn::MulAdd(wide, high, hn::PromoteTo(dd, xh))));
  };
  return hn::Combine(d, reduce(hn::UpperHalf(dh, x), hn::UpperHalf(dh, n)),
                     reduce(hn::LowerHalf(dh, x), hn::LowerHalf(dh, n)));
}
#endif

inline float scalar_sin(float x, float) { return float(std::sin(double(x))); }
inline float scalar_cos(float x, float) { return float(std::cos(double(x))); }

/// sin x (kShift 0) or cos x (kShift 1, a quarter turn ahead); beyond 1e5 one lane at a time.
template <int kShift>
HWY_INLINE VF sin_or_cos(VF x) {
#if HWY_TARGET == HWY_SCALAR
  return patch_lanes(x, hn::Eq(splat(0.0f), splat(0.0f)), x, x, kShift ? scalar_cos : scalar_sin);
#else
  const F32 d;
  const I32 di;
  const auto wild = hn::Not(hn::Lt(hn::Abs(x), splat(1e5f)));
  hn::Vec<I32> quadrant;
  const VF r = reduce_quadrant(hn::IfThenZeroElse(wild, x), quadrant);
  quadrant = hn::Add(quadrant, hn::Set(di, kShift));
  const VF z = hn::Mul(r, r);
  const VF sine = hn::MulAdd(hn::Mul(r, z), polynomial(z, kSinTail), r);
  const VF cosine = hn::MulAdd(hn::Mul(z, z), polynomial(z, kCosTail), hn::NegMulAdd(splat(0.5f), z, splat(1.0f)));
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(quadrant, hn::Set(di, 1)), hn::Set(di, 1)));
  const auto sign = hn::ShiftLeft<30>(hn::And(quadrant, hn::Set(di, 2)));
  const VF y = hn::Xor(hn::IfThenElse(odd, cosine, sine), hn::BitCast(d, sign));
  return patch_lanes(y, wild, x, x, kShift ? scalar_cos : scalar_sin);
#endif
}

inline float scalar_pow(float x, float y) { return float(std::pow(double(x), double(y))); }
/// x^y = exp(y log x) in double for finite x > 0; other lanes one at a time.
HWY_INLINE VF pow_f32(VF x, VF y) {
#if HWY_TARGET == HWY_SCALAR
  return patch_lanes(x, hn::Eq(splat(0.0f), splat(0.0f)), x, y, scalar_pow);
#else
  const F32 d;
  const hn::ScalableTag<double> dd;
  const hn::Half<F32> dh;
  const VF big = splat(3.4028235e38f);
  const auto tame = hn::And(hn::And(hn::Gt(x, hn::Zero(d)), hn::Le(x, big)), hn::Le(hn::Abs(y), big));
  auto power = [&](auto xh, auto yh) HWY_ATTR {
    auto e = hn::Mul(hn::PromoteTo(dd, yh), hn::Log(dd, hn::PromoteTo(dd, xh)));
    e = hn::Max(hn::Set(dd, -110.0), hn::Min(hn::Set(dd, 90.0), e));
    return hn::DemoteTo(dh, hn::Exp(dd, e));
  };
  const VF safe = hn::IfThenElse(tame, x, splat(1.0f)), exponent = hn::IfThenElseZero(tame, y);
  const VF result = hn::Combine(d, power(hn::UpperHalf(dh, safe), hn::UpperHalf(dh, exponent)),
                                power(hn::LowerHalf(dh, safe), hn::LowerHalf(dh, exponent)));
  return patch_lanes(result, hn::Not(tame), x, y, scalar_pow);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
