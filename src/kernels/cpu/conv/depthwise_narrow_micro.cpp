#include "kernels/cpu/conv/depthwise_narrow_micro.h"

#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/depthwise_narrow_micro.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using VF = hn::Vec<DF>;

HWY_INLINE VF Widened(const uint16_t* from) {
  const hn::Rebind<uint16_t, DF> half;
  return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(hn::RebindToUnsigned<DF>(), hn::LoadU(half, from))));
}
template <typename T>
HWY_INLINE VF Widened(const T* from) {
  return hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LoadU(hn::Rebind<T, DF>(), from)));
}

template <typename T>
void WidenOf(const T* from, int64_t from_step, int64_t pixels, int64_t channels, float zero, float* to,
             int64_t to_step) {
  const int64_t n = int64_t(hn::Lanes(DF())), whole = channels / n * n;
  const VF z = hn::Set(DF(), zero);
  const auto widened = [&](const T* at) HWY_ATTR { return sizeof(T) == 1 ? hn::Sub(Widened(at), z) : Widened(at); };
  if (from_step == channels && to_step == channels) {  // one run
    channels *= pixels;
    for (int64_t c = 0; c < channels; c += n) hn::StoreU(widened(from + c), DF(), to + c);
    return;
  }
  for (int64_t p = 0; p < pixels; ++p, from += from_step, to += to_step) {
    for (int64_t c = 0; c < whole; c += n) hn::StoreU(widened(from + c), DF(), to + c);
    if (whole == to_step) continue;
    // The last channels go through a copy: what lies beside them may be no one's.
    T lanes[16] = {};
    alignas(64) float last[16];
    std::memcpy(lanes, from + whole, size_t(channels - whole) * sizeof(T));
    hn::Store(widened(lanes), DF(), last);
    std::memcpy(to + whole, last, size_t(channels - whole) * 4);
    std::memset(to + channels, 0, size_t(to_step - channels) * 4);
  }
}

void Widen(DType dtype, const void* from, int64_t from_step, int64_t pixels, int64_t channels, float zero, float* to,
           int64_t to_step) {
  switch (dtype) {
    case DType::kBF16:
      return WidenOf(static_cast<const uint16_t*>(from), from_step, pixels, channels, zero, to, to_step);
    case DType::kU8:
      return WidenOf(static_cast<const uint8_t*>(from), from_step, pixels, channels, zero, to, to_step);
    default:
      return WidenOf(static_cast<const int8_t*>(from), from_step, pixels, channels, zero, to, to_step);
  }
}

void ToI32(float* numbers, int64_t n) {
  for (int64_t i = 0; i < n; i += int64_t(hn::Lanes(DF()))) {
    const hn::Vec<DI> v = hn::NearestInt(hn::LoadU(DF(), numbers + i));
    hn::StoreU(hn::BitCast(DF(), v), DF(), numbers + i);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(Widen);
HWY_EXPORT(ToI32);
}  // namespace
void widen_pixels(DType dtype, const void* from, int64_t from_step, int64_t pixels, int64_t channels, float zero,
                  float* to, int64_t to_step) {
  HWY_DYNAMIC_DISPATCH(Widen)(dtype, from, from_step, pixels, channels, zero, to, to_step);
}
void whole_to_i32(float* numbers, int64_t n) { HWY_DYNAMIC_DISPATCH(ToI32)(numbers, n); }
}  // namespace ridgeline::cpu
#endif
