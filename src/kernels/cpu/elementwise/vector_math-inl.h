// Functions over vectors of f32, for every vector target: error at most 2 units in the last place where the name says
// nothing else, exact at zero, infinity and NaN. Polynomials are minimax fits of our own (weighted least squares,
// reweighted to equal ripples, coefficients rounded to f32 one after the other from the lowest).
// tests/kernels_elementwise_test.cpp holds the errors.
//
// Included once per target, after <hwy/highway.h>, by files with vector code: everything is in an unnamed namespace.
#if defined(RIDGELINE_VECTOR_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_VECTOR_MATH_INL_H
#undef RIDGELINE_VECTOR_MATH_INL_H
#else
#define RIDGELINE_VECTOR_MATH_INL_H
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>

#include "kernels/cpu/elementwise/function_tables.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VF = hn::Vec<F32>;
using I32 = hn::RebindToSigned<F32>;

HWY_INLINE VF splat(float value) { return hn::Set(F32(), value); }

// x86's max and min return the second operand if one is NaN; the baseline's do not, so it asks. NaN in either gives
// NaN.
HWY_INLINE VF max_nan(VF a, VF b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Max(a, b)));
}
HWY_INLINE VF min_nan(VF a, VF b) {
  return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, hn::Min(a, b)));
}
/// max(x, bound), min(x, bound) for a bound that is no NaN: NaN in x stays.
HWY_INLINE VF at_least(VF bound, VF x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3
  return hn::Max(bound, x);
#else
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Max(bound, x));
#endif
}
HWY_INLINE VF at_most(VF bound, VF x) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3
  return hn::Min(bound, x);
#else
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Min(bound, x));
#endif
}

/// p(x) by Horner, coefficients from the lowest.
template <int kCount>
HWY_INLINE VF polynomial(VF x, const float (&c)[kCount]) {
  VF y = splat(c[kCount - 1]);
  for (int i = kCount - 2; i >= 0; --i) y = hn::MulAdd(y, x, splat(c[i]));
  return y;
}

/// x * 2^n for integral n of -160 to 160, rounded once (to denormals too) where the ISA can.
HWY_INLINE VF scale_by_power(VF x, VF n) {
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
  return VF{_mm512_scalef_ps(x.raw, n.raw)};
#else
  // 2^n in two factors, neither of which overflows.
  const I32 di;
  const auto i = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(i);
  const auto bias = hn::Set(di, 127);
  const VF first = hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(half, bias)));
  const VF second = hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Add(hn::Sub(i, half), bias)));
  return hn::Mul(hn::Mul(x, first), second);
#endif
}

/// 1 / x within 1 ulp for normal x whose reciprocal is normal. (A division takes 16 cycles a vector of AVX-512,
/// this 4.)
HWY_INLINE VF reciprocal_near(VF x) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  return hn::Div(splat(1.0f), x);
#else
  VF guess = hn::ApproximateReciprocal(x);  // 14 bits with AVX-512, 12 with AVX2, 8 with NEON
  if (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_NEON)
    guess = hn::MulAdd(guess, hn::NegMulAdd(x, guess, splat(1.0f)), guess);
  return hn::MulAdd(guess, hn::NegMulAdd(x, guess, splat(1.0f)), guess);
#endif
}

/// a / b within 0.6 ulp, for b as above and a / b that is normal.
HWY_INLINE VF divide_near(VF a, VF b) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  return hn::Div(a, b);
#else
  const VF inverse = reciprocal_near(b), q = hn::Mul(a, inverse);
  return hn::MulAdd(hn::NegMulAdd(q, b, a), inverse, q);
#endif
}

// e^r - 1 - r over r^2, |r| <= ln 2 / 2: relative error of e^r 3.4e-9.
constexpr float kExpTail[] = {4.9999994e-01f, 1.6666517e-01f, 4.1668285e-02f, 8.36925e-03f, 1.3820468e-03f};
// ln 2 in two parts, the first of nine bits so that n * kLn2High is exact also without a fused multiply-add.
constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f, kLog2E = 1.44269504f;

/// n and r with x = n ln 2 + r, for |x| up to about 110.
HWY_INLINE VF reduce_exp(VF x, VF& r) {
  const VF n = hn::Round(hn::Mul(x, splat(kLog2E)));
  r = hn::NegMulAdd(n, splat(kLn2Low), hn::NegMulAdd(n, splat(kLn2High), x));
  return n;
}
HWY_INLINE VF exp_reduced(VF r) { return hn::MulAdd(hn::Mul(r, r), polynomial(r, kExpTail), r); }  // e^r - 1

/// e^x: 1 ulp; overflows to infinity, underflows through the denormals to 0.
HWY_INLINE VF exp_f32(VF x) {
  VF r;
  x = at_least(splat(-105.0f), at_most(splat(90.0f), x));
  const VF n = reduce_exp(x, r);
  return scale_by_power(hn::Add(splat(1.0f), exp_reduced(r)), n);
}
/// e^x for x <= 0 (softmax, and arguments that are -|x|).
HWY_INLINE VF exp_negative(VF x) {
  VF r;
  x = at_least(splat(-105.0f), x);
  const VF n = reduce_exp(x, r);
  return scale_by_power(hn::Add(splat(1.0f), exp_reduced(r)), n);
}
/// e^x - 1 without cancellation.
HWY_INLINE VF expm1_f32(VF x) {
  VF r;
  const VF bounded = at_least(splat(-20.0f), at_most(splat(89.0f), x));
  const VF n = reduce_exp(bounded, r);
  const VF small = exp_reduced(r);
  // 2^n (small + 1) - 1 = 2^n small + (2^n - 1); at n = 128 the power itself overflows, so it is halved.
  const VF power = scale_by_power(splat(0.5f), n);
  const VF y = hn::MulAdd(power, small, hn::Sub(power, splat(0.5f)));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(F32())), x, hn::Add(y, y));
}

// (log(1 + f) - f + f^2 / 2) / f^3 for f of sqrt(1/2) - 1 to sqrt(2) - 1: relative error of the logarithm 5.9e-9.
constexpr float kLogTail[] = {3.333333e-01f,  -2.500082e-01f,  2.0001239e-01f, -1.66234e-01f,
                              1.4201671e-01f, -1.3159855e-01f, 1.2761572e-01f, -7.634768e-02f};

/// log x of normal x > 0, plus `carry` (a correction that is small beside the result).
HWY_INLINE VF log_normal(VF x, VF exponent_offset, VF carry) {
  const F32 d;
  const I32 di;
  // m in [sqrt(1/2), sqrt(2)): subtracting the bits of sqrt(1/2) makes the exponent field that of the nearest power.
  const auto bits = hn::Sub(hn::BitCast(di, x), hn::Set(di, 0x3f3504f3));
  const VF e = hn::Add(hn::ConvertTo(d, hn::ShiftRight<23>(bits)), exponent_offset);
  const VF m = hn::BitCast(d, hn::Add(hn::And(bits, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f3504f3)));
  const VF f = hn::Sub(m, splat(1.0f));
  const VF f2 = hn::Mul(f, f);
  VF tail = hn::MulAdd(hn::Mul(f2, f), polynomial(f, kLogTail), hn::MulAdd(e, splat(kLn2Low), carry));
  tail = hn::NegMulAdd(splat(0.5f), f2, tail);
  return hn::MulAdd(e, splat(kLn2High), hn::Add(f, tail));
}
/// log x: -inf at 0, NaN below.
HWY_INLINE VF log_f32(VF x) {
  const F32 d;
  const VF infinity = hn::Inf(d), zero = hn::Zero(d);
  const auto denormal = hn::Lt(x, splat(1.17549435e-38f));
  const VF scaled = hn::IfThenElse(denormal, hn::Mul(x, splat(8388608.0f)), x);
  VF y = log_normal(scaled, hn::IfThenElse(denormal, splat(-23.0f), zero), zero);
  y = hn::IfThenElse(hn::Lt(x, zero), hn::NaN(d), y);
  y = hn::IfThenElse(hn::Eq(x, zero), hn::Neg(infinity), y);
  return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Eq(x, infinity)), x, y);
}
/// log(1 + x) for 0 <= x <= 1: what 1 + x loses by rounding is put back as its derivative times the loss.
HWY_INLINE VF log1p_unit(VF x) {
  const VF one = splat(1.0f);
  const VF u = hn::Add(one, x);
  const VF lost = hn::Sub(x, hn::Sub(u, one));
  return hn::IfThenElse(hn::Lt(x, splat(1e-7f)), x, log_normal(u, hn::Zero(F32()), hn::Div(lost, u)));
}

/// 1 / (1 + e^-x) = 2^m / (2^m + 1 + s), x = m ln 2 - q and s = e^q - 1: the sum is rounded once, as 2^m + 1 loses
/// nothing or what is put back, and neither side overflows.
HWY_INLINE VF logistic_divisor(VF x, VF& m) {
  const VF one = splat(1.0f);
  const VF bounded = at_least(splat(-110.0f), at_most(splat(60.0f), x));
  m = hn::Round(hn::Mul(bounded, splat(kLog2E)));
  const VF q = hn::MulAdd(m, splat(kLn2Low), hn::MulSub(m, splat(kLn2High), bounded));
  const VF power = scale_by_power(one, m), sum = hn::Add(power, one);
  const VF lost = hn::Sub(power, hn::Sub(sum, one));
  return hn::Add(sum, hn::Add(exp_reduced(q), lost));
}
HWY_INLINE VF sigmoid_by_exp(VF x) {
  VF m;
  const VF divisor = logistic_divisor(x, m);
  return scale_by_power(reciprocal_near(divisor), m);
}
/// x / (1 + e^-x): down to -108, where x e^x is no denormal any more; NaN at -infinity, as x sigmoid(x) is.
HWY_INLINE VF silu_by_exp(VF x) {
  VF m;
  const VF divisor = logistic_divisor(x, m);
  const VF near = divide_near(at_least(splat(-110.0f), x), divisor);
  return scale_by_power(hn::IfThenElse(hn::IsInf(x), hn::Add(x, hn::Abs(x)), near), m);
}
/// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
HWY_INLINE VF softplus_f32(VF x) {
  const VF tail = log1p_unit(exp_negative(hn::Neg(hn::Abs(x))));
  return hn::Add(at_least(hn::Zero(F32()), x), tail);
}

// A polynomial on each of 32 intervals, its coefficients by table: on AVX-512 a look-up is one instruction, and half as
// many are needed as for an exponential and a reciprocal (tanh 18 for 32, GELU 17 for 50: 7.4 and 8.2 cycles a vector,
// before 15 and 26).
#undef RIDGELINE_FUNCTION_TABLES
#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
#define RIDGELINE_FUNCTION_TABLES 1
HWY_INLINE VF look_up(const float (&table)[32], __m512i at) {
  return VF{_mm512_permutex2var_ps(_mm512_load_ps(table), at, _mm512_load_ps(table + 16))};
}
/// The polynomial whose coefficients are the tables kFirst to kCount - 1, lowest first.
template <int kFirst, int kCount>
HWY_INLINE VF table_polynomial(VF u, const float (&tables)[kCount][32], __m512i at) {
  VF y = look_up(tables[kCount - 1], at);
  for (int i = kCount - 2; i >= kFirst; --i) y = hn::MulAdd(y, u, look_up(tables[i], at));
  return y;
}
#else
#define RIDGELINE_FUNCTION_TABLES 0
#endif

#if RIDGELINE_FUNCTION_TABLES
HWY_NOINLINE VF sigmoid_far(VF x) { return sigmoid_by_exp(x); }
HWY_NOINLINE VF silu_far(VF x) { return silu_by_exp(x); }
/// 1 / (1 + e^-x) where |x| < 15.75: 0.75 ulp and a rounding. 15.75 itself rounds to interval 32, which is 0.
HWY_INLINE VF sigmoid_near(VF x, VF a) {
  const __m512i at = _mm512_castps_si512(hn::MulAdd(a, splat(2.0f), splat(12582912.0f)).raw);  // as in gelu_f32
  const VF tail = table_polynomial<1>(hn::Sub(a, look_up(kLogisticTailTable[0], at)), kLogisticTailTable, at);
  return VF{_mm512_mask_sub_ps(tail.raw, _mm512_movepi32_mask(_mm512_castps_si512(x.raw)) ^ 0xffff, splat(1.0f).raw,
                               tail.raw)};
}
#endif
/// 2 ulp. By tables half the time of the exponential and its division.
HWY_INLINE VF sigmoid_f32(VF x) {
#if RIDGELINE_FUNCTION_TABLES
  const VF a = hn::Abs(x), y = sigmoid_near(x, a);
  const auto near = hn::Lt(a, splat(15.75f));  // false for NaN
  if (HWY_LIKELY(hn::AllTrue(F32(), near))) return y;
  return hn::IfThenElse(near, y, sigmoid_far(x));
#else
  return sigmoid_by_exp(x);
#endif
}
HWY_INLINE VF silu_f32(VF x) {
#if RIDGELINE_FUNCTION_TABLES
  const VF a = hn::Abs(x), y = hn::Mul(x, sigmoid_near(x, a));
  const auto near = hn::Lt(a, splat(15.75f));
  if (HWY_LIKELY(hn::AllTrue(F32(), near))) return y;
  return hn::IfThenElse(near, y, silu_far(x));
#else
  return silu_by_exp(x);
#endif
}

// (tanh x / x - 1) / x^2 in x^2, |x| <= 0.55: relative error of tanh 1.1e-9.
constexpr float kTanhTail[] = {-3.3333316e-01f, 1.3332544e-01f, -5.3847548e-02f, 2.1050714e-02f, -6.242849e-03f};
/// tanh x: a polynomial near 0, 1 - 2 / (e^2x + 1) from 0.55.
HWY_INLINE VF tanh_f32(VF x) {
#if RIDGELINE_FUNCTION_TABLES
  const VF bounded = at_most(splat(9.02f), hn::Abs(x));  // 1 from there
  const __m512i at = _mm512_srli_epi32(_mm512_castps_si512(hn::Max(bounded, splat(0.0625f)).raw), 21);
  return hn::CopySign(table_polynomial<1>(hn::Sub(bounded, look_up(kTanhTable[0], at)), kTanhTable, at), x);
#else
  const VF a = hn::Abs(x), z = hn::Mul(x, x);
  const VF small = hn::MulAdd(hn::Mul(a, z), polynomial(z, kTanhTail), a);
  const VF e =
      exp_negative(hn::Mul(splat(-2.0f), a));  // (1 - e) / (1 + e), 2 e / (1 + e) small: no cancellation that matters
  const VF large = hn::NegMulAdd(hn::Add(e, e), reciprocal_near(hn::Add(splat(1.0f), e)), splat(1.0f));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, splat(0.55f)), small, large), x);
#endif
}

// erf x / x - 1 in x^2, |x| <= 0.95 (9.1e-10), and -log(erfc x), 0.9 <= x <= 4 (error of erf 6.2e-11).
constexpr float kErfSmall[] = {1.2837917e-01f, -3.761263e-01f, 1.1283626e-01f, -2.685574e-02f,
                               5.1924605e-03f, -8.050804e-04f, 8.002775e-05f};
constexpr float kErfLarge[] = {-1.6920513e-04f, 1.1294883e+00f, 6.334011e-01f,  1.0821996e-01f,
                               -2.5080232e-02f, 4.156064e-03f,  -4.313441e-04f, 2.0823414e-05f};
/// erf x: 1 from 4 on, where 1 - erf x is under a quarter of an ulp.
HWY_INLINE VF erf_f32(VF x) {
#if RIDGELINE_FUNCTION_TABLES
  const VF bounded = at_most(splat(3.93f), hn::Abs(x));
  const __m512i at = _mm512_srli_epi32(_mm512_castps_si512(hn::Max(bounded, splat(0.03125f)).raw), 21);
  const VF u = hn::Sub(bounded, look_up(kErfTable[0], at));
  return hn::CopySign(hn::Add(table_polynomial<1>(u, kErfTable, at), u), x);
#else
  const VF a = hn::Abs(x), z = hn::Mul(x, x);
  const VF small = hn::MulAdd(a, polynomial(z, kErfSmall), a);
  const VF bounded = at_most(splat(4.0f), a);
  const VF large = hn::Sub(splat(1.0f), exp_negative(hn::Neg(polynomial(bounded, kErfLarge))));
  return hn::CopySign(hn::IfThenElse(hn::Lt(a, splat(0.93f)), small, large), x);
#endif
}

// erfc(a) e^(a^2) (a + 3) as a polynomial in t = 6 / (a + 3) - 1, 0 <= a <= 10.2: relative error 8.2e-9.
constexpr float kErfcScaled[] = {1.0740069e+00f, 8.833945e-01f,   5.902278e-01f,  3.1046626e-01f,  1.19534284e-01f,
                                 2.6836962e-02f, -1.2430414e-03f, -3.068935e-03f, -4.6721625e-04f, 3.124853e-04f};
/// erfc(a) for a >= 0, where a^2 = square + loss: the rounding of the square would cost a^2 ulps in the exponential.
HWY_INLINE VF erfc_positive(VF a, VF square, VF loss) {
  const VF q = reciprocal_near(hn::Add(a, splat(3.0f)));
  const VF t = hn::MulSub(splat(6.0f), q, splat(1.0f));
  VF e = exp_negative(hn::Neg(square));
  e = hn::NegMulAdd(e, loss, e);
  return hn::Mul(hn::Mul(polynomial(t, kErfcScaled), q), e);
}
/// a * b - product, exactly: what rounding lost.
HWY_INLINE VF product_loss(VF a, VF b, VF product) {
#if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  // No fused multiply-add: split into halves of 12 bits (Dekker, 1971).
  const VF split = splat(4097.0f);
  const VF ca = hn::Mul(a, split), cb = hn::Mul(b, split);
  const VF ah = hn::Sub(ca, hn::Sub(ca, a)), bh = hn::Sub(cb, hn::Sub(cb, b));
  const VF al = hn::Sub(a, ah), bl = hn::Sub(b, bh);
  VF loss = hn::Sub(hn::Mul(ah, bh), product);
  loss = hn::Add(loss, hn::Mul(ah, bl));
  loss = hn::Add(loss, hn::Mul(al, bh));
  return hn::Add(loss, hn::Mul(al, bl));
#else
  return hn::MulSub(a, b, product);
#endif
}
#if HWY_TARGET == HWY_AVX2 || RIDGELINE_FUNCTION_TABLES
/// erfc(z) / 2 for z = a * by, a >= 0, in double on half a vector: the same form in f32 has 4 to 7 ulp, by the slope of
/// its polynomial and the rounding of the square.
HWY_INLINE hn::Vec<hn::ScalableTag<double>> half_erfc_wide(hn::Vec<hn::Half<F32>> a, double by) {
  const hn::ScalableTag<double> d;
  const auto z = hn::Mul(hn::PromoteTo(d, a), hn::Set(d, by)), one = hn::Set(d, 1.0);
  const auto q = hn::Div(one, hn::Add(z, hn::Set(d, 3.0))), t = hn::MulSub(hn::Set(d, 6.0), q, one);
  auto y = hn::Set(d, double(kErfcScaled[9]));
  for (int i = 8; i >= 0; --i) y = hn::MulAdd(y, t, hn::Set(d, double(kErfcScaled[i])));
  const auto e = hn::Exp(d, hn::Neg(hn::Mul(z, z)));
  return hn::Mul(hn::Mul(y, q), hn::Mul(e, hn::Set(d, 0.5)));
}
/// erfc x = 1 - erf x to the last digits of the tail.
HWY_INLINE VF erfc_f32(VF x) {
  const F32 d;
  const hn::ScalableTag<double> dd;
  const hn::Half<F32> dh;
  const VF a = at_most(splat(10.2f), hn::Abs(x));
  const auto half = [&](auto xh, auto ah) HWY_ATTR {
    const auto tail = hn::Mul(half_erfc_wide(ah, 1.0), hn::Set(dd, 2.0));
    const auto negative = hn::Lt(hn::PromoteTo(dd, xh), hn::Zero(dd));
    return hn::DemoteTo(dh, hn::IfThenElse(negative, hn::Sub(hn::Set(dd, 2.0), tail), tail));
  };
  return hn::Combine(d, half(hn::UpperHalf(dh, x), hn::UpperHalf(dh, a)),
                     half(hn::LowerHalf(dh, x), hn::LowerHalf(dh, a)));
}
#else
/// erfc x = 1 - erf x to the last digits of the tail: 6 ulp.
HWY_INLINE VF erfc_f32(VF x) {
  const VF z = hn::Mul(x, x);
  const VF near = hn::Sub(splat(1.0f), hn::MulAdd(x, polynomial(z, kErfSmall), x));
  const VF a = at_most(splat(10.2f), hn::Abs(x));
  const VF square = hn::Mul(a, a);
  const VF tail = erfc_positive(a, square, product_loss(a, a, square));
  const VF far = hn::IfThenElse(hn::Lt(x, hn::Zero(F32())), hn::Sub(splat(2.0f), tail), tail);
  return hn::IfThenElse(hn::Lt(hn::Abs(x), splat(0.7f)), near, far);
}
#endif
#if RIDGELINE_FUNCTION_TABLES
/// GELU where |x| >= 4.5: in double.
HWY_NOINLINE VF gelu_far(VF x) {
  const F32 d;
  const hn::ScalableTag<double> dd;
  const hn::Half<F32> dh;
  const VF a = at_most(splat(14.4f), hn::Abs(x));  // beyond, nothing is left of the tail
  const VF bounded = at_least(splat(-14.4f), x);
  const auto half = [&](auto xh, auto ah) HWY_ATTR {
    const auto tail = half_erfc_wide(ah, 0.70710678118654752), wide = hn::PromoteTo(dd, xh);
    const auto share = hn::IfThenElse(hn::Lt(wide, hn::Zero(dd)), tail, hn::Sub(hn::Set(dd, 1.0), tail));
    return hn::DemoteTo(dh, hn::Mul(wide, share));
  };
  const VF y = hn::Combine(d, half(hn::UpperHalf(dh, bounded), hn::UpperHalf(dh, a)),
                           half(hn::LowerHalf(dh, bounded), hn::LowerHalf(dh, a)));
  return hn::IfThenElse(hn::IsInf(x), hn::Add(x, hn::Abs(x)), y);  // NaN at -infinity, as x erfc(-x / sqrt(2)) is
}
#endif
/// x P(N(0, 1) <= x) = x erfc(-x / sqrt(2)) / 2: relative error stays a few ulp in the negative tail, where
/// x (1 + erf) / 2 has no digits left below -5. 2 ulp by tables, else 7.
HWY_INLINE VF gelu_f32(VF x) {
#if RIDGELINE_FUNCTION_TABLES
  const VF a = hn::Abs(x), magic = splat(12582912.0f);  // 1.5 2^23: adding it rounds to a whole number, in the low bits
  const VF sum = hn::MulAdd(a, splat(7.0f), magic);
  const __m512i at = _mm512_castps_si512(sum.raw);
  const VF u = hn::MulSub(a, splat(7.0f), hn::Sub(sum, magic));
  const VF tail = table_polynomial<0>(u, kNormalTailTable, at);
  const VF share = VF{_mm512_mask_sub_ps(tail.raw, _mm512_movepi32_mask(_mm512_castps_si512(x.raw)) ^ 0xffff,
                                         splat(1.0f).raw, tail.raw)};
  const VF y = hn::Mul(x, share);
  const auto near = hn::Lt(a, splat(4.5f));  // false for NaN; 4.5 itself rounds to interval 32, which is 0
  if (HWY_LIKELY(hn::AllTrue(F32(), near))) return y;
  return hn::IfThenElse(near, y, gelu_far(x));
#else
  const VF zero = hn::Zero(F32()), half_one = splat(0.5f);
  const VF a = at_most(splat(14.2f), hn::Abs(x));
  const VF half = hn::Mul(a, half_one);
  const VF square = hn::Mul(a, half);
  const VF argument = hn::Mul(a, splat(0.70710678f));
  const VF tail = hn::Mul(half_one, erfc_positive(argument, square, product_loss(a, half, square)));
  const VF far = hn::IfThenElse(hn::Lt(x, zero), tail, hn::Sub(splat(1.0f), tail));
  // Near 0 the scaled form has 7 ulp: the slope of its polynomial magnifies the error of t.
  const VF erf = hn::MulAdd(argument, polynomial(square, kErfSmall), argument);
  const VF near = hn::MulAdd(hn::CopySign(half_one, x), erf, half_one);
  return hn::Mul(x, hn::IfThenElse(hn::Lt(argument, splat(0.7f)), near, far));
#endif
}
/// x clamp(x / 6 + 1/2, 0, 1)
HWY_INLINE VF hard_swish_f32(VF x) {
  const VF gate = hn::MulAdd(x, splat(1.0f / 6), splat(0.5f));
  return hn::Mul(x, at_most(splat(1.0f), at_least(hn::Zero(F32()), gate)));
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
