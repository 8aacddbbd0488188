// The passes, written once for every vector width. Source: Stockham, 1966, as Van Loan's Computational frameworks for
// the fast Fourier transform, 1992, has it.
#include "kernels/cpu/signal/fft.h"

#include <algorithm>

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/signal/fft.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class D>
struct Pair {
  hn::Vec<D> re, im;
};

template <class D>
HWY_INLINE Pair<D> add(Pair<D> a, Pair<D> b) {
  return {hn::Add(a.re, b.re), hn::Add(a.im, b.im)};
}
template <class D>
HWY_INLINE Pair<D> sub(Pair<D> a, Pair<D> b) {
  return {hn::Sub(a.re, b.re), hn::Sub(a.im, b.im)};
}
/// a + b * w, w real.
template <class D>
HWY_INLINE Pair<D> add_scaled(Pair<D> a, Pair<D> b, hn::Vec<D> w) {
  return {hn::MulAdd(b.re, w, a.re), hn::MulAdd(b.im, w, a.im)};
}
template <class D>
HWY_INLINE Pair<D> mul(Pair<D> a, hn::Vec<D> re, hn::Vec<D> im) {
  return {hn::NegMulAdd(a.im, im, hn::Mul(a.re, re)), hn::MulAdd(a.im, re, hn::Mul(a.re, im))};
}
/// a - i b and a + i b.
template <class D>
HWY_INLINE Pair<D> sub_turned(Pair<D> a, Pair<D> b) {
  return {hn::Add(a.re, b.im), hn::Sub(a.im, b.re)};
}
template <class D>
HWY_INLINE Pair<D> add_turned(Pair<D> a, Pair<D> b) {
  return {hn::Sub(a.re, b.im), hn::Add(a.im, b.re)};
}

template <class D>
HWY_INLINE void butterfly(D /*d*/, Pair<D> (&x)[2], const hn::TFromD<D>* /*root*/) {
  const Pair<D> a = x[0];
  x[0] = add<D>(a, x[1]);
  x[1] = sub<D>(a, x[1]);
}
template <class D>
HWY_INLINE void butterfly(D d, Pair<D> (&x)[3], const hn::TFromD<D>* /*root*/) {
  using T = hn::TFromD<D>;
  const auto sine = hn::Set(d, T(0.86602540378443864676));
  const Pair<D> sum = add<D>(x[1], x[2]), difference = sub<D>(x[1], x[2]);
  const Pair<D> middle = add_scaled<D>(x[0], sum, hn::Set(d, T(-0.5)));
  const Pair<D> turned = {hn::Mul(difference.re, sine), hn::Mul(difference.im, sine)};
  x[0] = add<D>(x[0], sum);
  x[1] = sub_turned<D>(middle, turned);
  x[2] = add_turned<D>(middle, turned);
}
template <class D>
HWY_INLINE void butterfly(D /*d*/, Pair<D> (&x)[4], const hn::TFromD<D>* /*root*/) {
  const Pair<D> a = add<D>(x[0], x[2]), b = sub<D>(x[0], x[2]), c = add<D>(x[1], x[3]), e = sub<D>(x[1], x[3]);
  x[0] = add<D>(a, c);
  x[1] = sub_turned<D>(b, e);
  x[2] = sub<D>(a, c);
  x[3] = add_turned<D>(b, e);
}
template <class D>
HWY_INLINE void butterfly(D d, Pair<D> (&x)[5], const hn::TFromD<D>* /*root*/) {
  using T = hn::TFromD<D>;
  const auto c1 = hn::Set(d, T(0.30901699437494742410)), c2 = hn::Set(d, T(-0.80901699437494742410));
  const auto s1 = hn::Set(d, T(0.95105651629515357212)), s2 = hn::Set(d, T(0.58778525229247312917));
  const Pair<D> a = add<D>(x[1], x[4]), b = sub<D>(x[1], x[4]), c = add<D>(x[2], x[3]), e = sub<D>(x[2], x[3]);
  const Pair<D> p = add_scaled<D>(add_scaled<D>(x[0], a, c1), c, c2);
  const Pair<D> q = add_scaled<D>(add_scaled<D>(x[0], a, c2), c, c1);
  const Pair<D> u = add_scaled<D>({hn::Mul(b.re, s1), hn::Mul(b.im, s1)}, e, s2);
  const Pair<D> v = add_scaled<D>({hn::Mul(b.re, s2), hn::Mul(b.im, s2)}, e, hn::Neg(s1));
  x[0] = add<D>(x[0], add<D>(a, c));
  x[1] = sub_turned<D>(p, u);
  x[4] = add_turned<D>(p, u);
  x[2] = sub_turned<D>(q, v);
  x[3] = add_turned<D>(q, v);
}
/// Any other odd number of points, by pairs that share their products.
template <class D, int kRadix>
HWY_INLINE void butterfly(D d, Pair<D> (&x)[kRadix], const hn::TFromD<D>* root) {
  constexpr int kHalf = kRadix / 2;
  Pair<D> sum[kHalf + 1], difference[kHalf + 1], y[kRadix];
  y[0] = x[0];
  for (int j = 1; j <= kHalf; ++j) {
    sum[j] = add<D>(x[j], x[kRadix - j]);
    difference[j] = sub<D>(x[j], x[kRadix - j]);
    y[0] = add<D>(y[0], sum[j]);
  }
  for (int k = 1; k <= kHalf; ++k) {
    Pair<D> even = x[0], odd = {hn::Zero(d), hn::Zero(d)};
    for (int j = 1; j <= kHalf; ++j) {
      const int at = j * k % kRadix;
      even = add_scaled<D>(even, sum[j], hn::Set(d, root[2 * at]));
      odd = add_scaled<D>(odd, difference[j], hn::Set(d, root[2 * at + 1]));
    }
    y[k] = add_turned<D>(even, odd);
    y[kRadix - k] = sub_turned<D>(even, odd);
  }
  for (int k = 0; k < kRadix; ++k) x[k] = y[k];
}

template <class T>
struct Arrays {
  const T *re, *im;
  T *to_re, *to_im;
};

template <int kRadix, class D, class T = hn::TFromD<D>>
void run_pass(D d, const FftPass<T>& pass, int64_t s, Arrays<T> a) {
  const int64_t lanes = int64_t(hn::Lanes(d)), m = pass.m;
  const T* root = pass.root.data();
  for (int64_t p = 0; p < m; ++p) {
    const T* w = pass.twiddle.data() + p * (kRadix - 1) * 2;
    for (int64_t q = 0; q < s; q += lanes) {
      Pair<D> x[kRadix];
      for (int j = 0; j < kRadix; ++j) {
        const int64_t at = (p + m * j) * s + q;
        x[j] = {hn::LoadU(d, a.re + at), hn::LoadU(d, a.im + at)};
      }
      butterfly(d, x, root);
      for (int k = 0; k < kRadix; ++k) {
        const int64_t at = (kRadix * p + k) * s + q;
        const Pair<D> y = k == 0 ? x[0] : mul<D>(x[k], hn::Set(d, w[2 * k - 2]), hn::Set(d, w[2 * k - 1]));
        hn::StoreU(y.re, d, a.to_re + at);
        hn::StoreU(y.im, d, a.to_im + at);
      }
    }
  }
}

template <class D, class T = hn::TFromD<D>>
void run_any(D d, const FftPass<T>& pass, int64_t s, Arrays<T> a) {
  switch (pass.radix) {
    case 2:
      return run_pass<2>(d, pass, s, a);
    case 3:
      return run_pass<3>(d, pass, s, a);
    case 4:
      return run_pass<4>(d, pass, s, a);
    case 5:
      return run_pass<5>(d, pass, s, a);
    case 7:
      return run_pass<7>(d, pass, s, a);
    case 11:
      return run_pass<11>(d, pass, s, a);
    default:
      return run_pass<13>(d, pass, s, a);
  }
}

/// The widest vectors that the stride is a multiple of.
template <class T>
void run_width(const FftPass<T>& pass, int64_t s, Arrays<T> a) {
  const hn::ScalableTag<T> whole;
  const int64_t power = s & -s;
  if (power >= int64_t(hn::Lanes(whole))) return run_any(whole, pass, s, a);
  if (power >= 8) return run_any(hn::CappedTag<T, 8>(), pass, s, a);
  if (power >= 4) return run_any(hn::CappedTag<T, 4>(), pass, s, a);
  if (power >= 2) return run_any(hn::CappedTag<T, 2>(), pass, s, a);
  run_any(hn::CappedTag<T, 1>(), pass, s, a);
}

template <class T>
bool run_passes(const FftPlan<T>& plan, int64_t lanes, T* re, T* im, T* other_re, T* other_im) {
  bool other = false;
  int64_t s = lanes;
  for (const FftPass<T>& pass : plan.passes) {
    run_width<T>(pass, s, {re, im, other_re, other_im});
    std::swap(re, other_re);
    std::swap(im, other_im);
    other = !other;
    s *= pass.radix;
  }
  return other;
}

/// Each of `count` points times its factor.
template <class T>
void multiply(const T* by, int64_t count, int64_t lanes, T* re, T* im) {
  for (int64_t k = 0; k < count; ++k)
    for (int64_t q = k * lanes; q < (k + 1) * lanes; ++q) {
      const T x = re[q], y = im[q];
      re[q] = x * by[2 * k] - y * by[2 * k + 1];
      im[q] = x * by[2 * k + 1] + y * by[2 * k];
    }
}

template <class T>
bool run(const FftPlan<T>& plan, int64_t lanes, T* re, T* im, T* other_re, T* other_im) {
  if (plan.chirp.empty()) return run_passes(plan, lanes, re, im, other_re, other_im);
  multiply(plan.chirp.data(), plan.length, lanes, re, im);
  std::fill(re + plan.length * lanes, re + plan.size * lanes, T(0));
  std::fill(im + plan.length * lanes, im + plan.size * lanes, T(0));
  bool other = run_passes(plan, lanes, re, im, other_re, other_im);
  if (other) {
    std::swap(re, other_re);
    std::swap(im, other_im);
  }
  multiply(plan.spectrum.data(), plan.size, lanes, re, im);
  const bool again = run_passes(plan, lanes, im, re, other_im, other_re);  // back: parts exchanged
  if (again) {
    std::swap(re, other_re);
    std::swap(im, other_im);
  }
  multiply(plan.chirp.data(), plan.length, lanes, re, im);
  return other != again;
}

bool run_f32(const FftPlan<float>& plan, int64_t lanes, float* re, float* im, float* other_re, float* other_im) {
  return run(plan, lanes, re, im, other_re, other_im);
}
bool run_f64(const FftPlan<double>& plan, int64_t lanes, double* re, double* im, double* other_re, double* other_im) {
  return run(plan, lanes, re, im, other_re, other_im);
}
int lanes_of(int bytes) { return int(hn::Lanes(hn::ScalableTag<uint8_t>())) / bytes; }

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(run_f32);
HWY_EXPORT(run_f64);
HWY_EXPORT(lanes_of);
}  // namespace

bool run_fft(const FftPlan<float>& plan, int64_t lanes, float* re, float* im, float* other_re, float* other_im) {
  return HWY_DYNAMIC_DISPATCH(run_f32)(plan, lanes, re, im, other_re, other_im);
}
bool run_fft(const FftPlan<double>& plan, int64_t lanes, double* re, double* im, double* other_re, double* other_im) {
  return HWY_DYNAMIC_DISPATCH(run_f64)(plan, lanes, re, im, other_re, other_im);
}
int fft_lanes(int element_bytes) { return std::max(1, HWY_DYNAMIC_DISPATCH(lanes_of)(element_bytes)); }

}  // namespace ridgeline::cpu
#endif
