#include "kernels/cpu/quantize/quantize_rows.h"

#include <cmath>

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/quantize/quantize_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<D>;
using D8 = hn::Rebind<uint8_t, D>;

void Range(const float* x, int64_t n, float* least, float* most) {
  const D d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  auto low = hn::Set(d, *least), high = hn::Set(d, *most);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    low = hn::IfThenElse(hn::Lt(v, low), v, low);
    high = hn::IfThenElse(hn::Gt(v, high), v, high);
  }
  float a = hn::GetLane(hn::MinOfLanes(d, low)), b = hn::GetLane(hn::MaxOfLanes(d, high));
  for (; i < n; ++i) {
    if (x[i] < a) a = x[i];
    if (x[i] > b) b = x[i];
  }
  *least = a;
  *most = b;
}

// Steps in f32, where sums of a rounded quotient and a zero point are exact as far as they are within range.
void Quantize(const float* x, int64_t n, float scale, int32_t zero, bool is_signed, bool still, uint8_t* y) {
  const float low = is_signed ? -128.0f : 0.0f, high = is_signed ? 127.0f : 255.0f;
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const D d;
  const DI di;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto by = hn::Set(d, scale), shift = hn::Set(d, float(zero)), lo = hn::Set(d, low), hi = hn::Set(d, high);
  for (; i + lanes <= n; i += lanes) {
    auto v = hn::LoadU(d, x + i);
    v = still ? hn::Zero(d) : hn::Round(hn::Div(v, by));
    const auto number = hn::Eq(v, v);
    v = hn::Min(hn::Max(hn::Add(v, shift), lo), hi);
    const auto q = hn::ConvertTo(di, hn::IfThenElseZero(number, v));
    if (is_signed)
      hn::StoreU(hn::DemoteTo(hn::Rebind<int8_t, D>(), q), hn::Rebind<int8_t, D>(), reinterpret_cast<int8_t*>(y) + i);
    else
      hn::StoreU(hn::DemoteTo(D8(), q), D8(), y + i);
  }
#endif
  for (; i < n; ++i) {
    float v = still ? 0.0f : __builtin_nearbyintf(x[i] / scale);
    const bool number = v == v;
    v += float(zero);
    v = v < low ? low : v > high ? high : v;
    y[i] = uint8_t(number ? int32_t(v) : 0);
  }
}

void Dequantize(const uint8_t* x, int64_t n, float scale, int32_t zero, bool is_signed, float* y) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const D d;
  const DI di;
  const int64_t lanes = int64_t(hn::Lanes(d));
  const auto by = hn::Set(d, scale);
  const auto shift = hn::Set(di, zero);
  for (; i + lanes <= n; i += lanes) {
    const auto v = is_signed
                       ? hn::PromoteTo(di, hn::LoadU(hn::Rebind<int8_t, D>(), reinterpret_cast<const int8_t*>(x) + i))
                       : hn::PromoteTo(di, hn::LoadU(D8(), x + i));
    hn::StoreU(hn::Mul(hn::ConvertTo(d, hn::Sub(v, shift)), by), d, y + i);
  }
#endif
  for (; i < n; ++i) y[i] = float((is_signed ? int32_t(int8_t(x[i])) : int32_t(x[i])) - zero) * scale;
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(Range);
HWY_EXPORT(Quantize);
HWY_EXPORT(Dequantize);
}  // namespace

void range_of_row(const float* x, int64_t n, float* least, float* most) {
  HWY_DYNAMIC_DISPATCH(Range)(x, n, least, most);
}
void quantize_row(const float* x, int64_t n, float scale, int32_t zero, bool is_signed, bool still, uint8_t* y) {
  HWY_DYNAMIC_DISPATCH(Quantize)(x, n, scale, zero, is_signed, still, y);
}
void dequantize_row(const uint8_t* x, int64_t n, float scale, int32_t zero, bool is_signed, float* y) {
  HWY_DYNAMIC_DISPATCH(Dequantize)(x, n, scale, zero, is_signed, y);
}

}  // namespace ridgeline::cpu
#endif
