// Maxima of bytes and of bf16 with the channels contiguous: first over the rows of a window for all columns at once,
// then over its columns, each in the type's own width. ResNet-50's 3x3 pool of 112x112x64 took 195 us window by window
// in f32.
#include "kernels/cpu/pool/pool_steps.h"
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/pool/max_narrow.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// bf16 as whole numbers of the same order; each NaN is one above infinity. Its own inverse, but for the NaNs' signs.
template <class D>
HWY_INLINE hn::Vec<D> Ordered(D d, hn::Vec<D> bits) {
  const auto size = hn::And(bits, hn::Set(d, int16_t(0x7fff)));
  const auto moved = hn::Xor(bits, hn::And(hn::ShiftRight<15>(bits), hn::Set(d, int16_t(0x7fff))));
  return hn::IfThenElse(hn::Gt(size, hn::Set(d, int16_t(0x7f80))), hn::Or(size, hn::Set(d, int16_t(0x40))), moved);
}
inline int16_t ordered(int16_t bits) {
  const int16_t size = int16_t(bits & 0x7fff);
  return size > 0x7f80 ? int16_t(size | 0x40) : bits < 0 ? int16_t(bits ^ 0x7fff) : bits;
}

template <typename T>
struct Raw {
  template <class D>
  static HWY_INLINE hn::Vec<D> In(D, hn::Vec<D> v) {
    return v;
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Out(D, hn::Vec<D> v) {
    return v;
  }
  static T in(T v) { return v; }
  static T out(T v) { return v; }
};
template <>
struct Raw<int16_t> {
  template <class D>
  static HWY_INLINE hn::Vec<D> In(D d, hn::Vec<D> v) {
    return Ordered(d, v);
  }
  template <class D>
  static HWY_INLINE hn::Vec<D> Out(D d, hn::Vec<D> v) {
    return hn::Xor(v, hn::And(hn::ShiftRight<15>(v), hn::Set(d, int16_t(0x7fff))));
  }
  static int16_t in(int16_t v) { return ordered(v); }
  static int16_t out(int16_t v) { return v < 0 ? int16_t(v ^ 0x7fff) : v; }
};

/// to[i] = max over rows of rows[r][i], ordered.
template <typename T>
void RowsOf(const void* const* rows, int64_t row_count, int64_t n, T* to) {
  const hn::CappedTag<T, 64 / sizeof(T)> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto v = Raw<T>::In(d, hn::LoadU(d, static_cast<const T*>(rows[0]) + i));
    for (int64_t r = 1; r < row_count; ++r)
      v = hn::Max(v, Raw<T>::In(d, hn::LoadU(d, static_cast<const T*>(rows[r]) + i)));
    hn::StoreU(v, d, to + i);
  }
  for (; i < n; ++i) {
    T v = Raw<T>::in(static_cast<const T*>(rows[0])[i]);
    for (int64_t r = 1; r < row_count; ++r) {
      const T other = Raw<T>::in(static_cast<const T*>(rows[r])[i]);
      v = other > v ? other : v;
    }
    to[i] = v;
  }
}

/// y[i] = max over t < taps of columns[t * step + i], in the type's own form again.
template <typename T>
void ColumnsOf(const T* columns, int64_t step, int64_t taps, int64_t n, T* y) {
  const hn::CappedTag<T, 64 / sizeof(T)> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    auto v = hn::LoadU(d, columns + i);
    for (int64_t t = 1; t < taps; ++t) v = hn::Max(v, hn::LoadU(d, columns + t * step + i));
    hn::StoreU(Raw<T>::Out(d, v), d, y + i);
  }
  for (; i < n; ++i) {
    T v = columns[i];
    for (int64_t t = 1; t < taps; ++t) v = columns[t * step + i] > v ? columns[t * step + i] : v;
    y[i] = Raw<T>::out(v);
  }
}

void MaxRows(DType dtype, const void* const* rows, int64_t row_count, int64_t n, void* to) {
  if (dtype == DType::kU8)
    RowsOf(rows, row_count, n, static_cast<uint8_t*>(to));
  else if (dtype == DType::kI8)
    RowsOf(rows, row_count, n, static_cast<int8_t*>(to));
  else
    RowsOf(rows, row_count, n, static_cast<int16_t*>(to));
}
void MaxColumns(DType dtype, const void* columns, int64_t step, int64_t taps, int64_t n, void* y) {
  if (dtype == DType::kU8)
    ColumnsOf(static_cast<const uint8_t*>(columns), step, taps, n, static_cast<uint8_t*>(y));
  else if (dtype == DType::kI8)
    ColumnsOf(static_cast<const int8_t*>(columns), step, taps, n, static_cast<int8_t*>(y));
  else
    ColumnsOf(static_cast<const int16_t*>(columns), step, taps, n, static_cast<int16_t*>(y));
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(MaxRows);
HWY_EXPORT(MaxColumns);
}  // namespace

void max_rows_narrow(DType dtype, const void* const* rows, int64_t row_count, int64_t n, void* to) {
  HWY_DYNAMIC_DISPATCH(MaxRows)(dtype, rows, row_count, n, to);
}
void max_columns_narrow(DType dtype, const void* columns, int64_t step, int64_t taps, int64_t n, void* y) {
  HWY_DYNAMIC_DISPATCH(MaxColumns)(dtype, columns, step, taps, n, y);
}

}  // namespace ridgeline::cpu
#endif
