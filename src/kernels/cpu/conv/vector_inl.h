// Parts of the per-target code of this family; included once for each target, inside no namespace.
#if defined(RIDGELINE_CONV_VECTOR_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_CONV_VECTOR_INL_H
#undef RIDGELINE_CONV_VECTOR_INL_H
#else
#define RIDGELINE_CONV_VECTOR_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr hn::ScalableTag<float> d;
using V = hn::Vec<decltype(d)>;
using M = hn::Mask<decltype(d)>;
constexpr int kLanes = int(hn::MaxLanes(d));
// Masked loads and stores of these targets touch no lane outside the mask; the baseline's do, so it copies.
constexpr bool kMasks = HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2;

/// Lanes [first, last).
HWY_INLINE M Lanes(int64_t first, int64_t last) {
  const auto clamp = [](int64_t i) { return size_t(i < 0 ? 0 : i > kLanes ? kLanes : i); };
  return hn::AndNot(hn::FirstN(d, clamp(first)), hn::FirstN(d, clamp(last)));
}

/// p[first..last) in these lanes, zero elsewhere; nothing else is read. `lanes` must be Lanes(first, last).
HWY_INLINE V LoadLanes(const float* p, M lanes, int64_t first, int64_t last) {
  if constexpr (kMasks) {
    return hn::MaskedLoad(lanes, d, p);
  } else {
    float all[kLanes] = {};
    for (int64_t i = first; i < last; ++i) all[i] = p[i];
    return hn::LoadU(d, all);
  }
}

HWY_INLINE V LoadFirst(const float* p, int64_t n) {
  return n >= kLanes ? hn::LoadU(d, p) : LoadLanes(p, hn::FirstN(d, size_t(n)), 0, n);
}

HWY_INLINE void StoreFirst(V v, float* p, int64_t n) {
  if (n >= kLanes) return hn::StoreU(v, d, p);
  if constexpr (kMasks) {
    hn::BlendedStore(v, hn::FirstN(d, size_t(n)), d, p);
  } else {
    float all[kLanes];
    hn::StoreU(v, d, all);
    for (int64_t i = 0; i < n; ++i) p[i] = all[i];
  }
}

/// NaN stays: x86's max and min give their second operand if either is NaN; elsewhere it is written out.
HWY_INLINE V Clamp(V v, V low, V high) {
  if constexpr (kMasks) return hn::Min(high, hn::Max(low, v));
  v = hn::IfThenElse(hn::Lt(v, low), low, v);
  return hn::IfThenElse(hn::Gt(v, high), high, v);
}

/// sum += x * w. The assembler fixes order and registers: g++ 12 moves sums about, or spills them once the loop is
/// unrolled more than twice (90 % of the peak became 70 %).
HWY_INLINE void Accumulate(V& sum, V x, V w) {
#if HWY_TARGET == HWY_AVX3
  asm volatile("vfmadd231ps %2, %1, %0" : "+v"(sum.raw) : "v"(x.raw), "v"(w.raw));
#elif HWY_TARGET == HWY_AVX2
  asm volatile("vfmadd231ps %2, %1, %0" : "+x"(sum.raw) : "x"(x.raw), "x"(w.raw));
#else
  sum = hn::MulAdd(x, w, sum);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#endif
