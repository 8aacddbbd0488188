// Loads of a vector's first lanes that touch no others; included once for each target, inside no namespace.
#if defined(RIDGELINE_MASKED_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_MASKED_INL_H
#undef RIDGELINE_MASKED_INL_H
#else
#define RIDGELINE_MASKED_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

/// p[i] in the lanes of `mask`, zero in the others, whose memory is not touched. Highway's MaskedLoad of the baseline
/// loads the whole vector and clears lanes afterwards: past the end of a tensor that was a read of strange memory
/// (found by the address sanitizer). BlendedStore stores lane by lane there, so it needs no such care.
/// (Not to be named MaskedLoad: argument-dependent lookup would take Highway's.)
template <class D, class M, typename T>
HWY_INLINE hwy::HWY_NAMESPACE::Vec<D> LoadMasked(M mask, D d, const T* p) {
  namespace hn = hwy::HWY_NAMESPACE;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  return hn::MaskedLoad(mask, d, p);
#else
  alignas(64) T lanes[hn::MaxLanes(D())] = {};
  uint8_t bits[8] = {};
  hn::StoreMaskBits(d, mask, bits);
  for (size_t i = 0; i < hn::Lanes(d); ++i)
    if (bits[i / 8] >> (i % 8) & 1) lanes[i] = p[i];
  return hn::Load(d, lanes);
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#endif
