// Blocks of any dtype that f32 can hold, to and from f32. Included once per target.
#if defined(RIDGELINE_BLOCK_IO_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_BLOCK_IO_INL_H
#undef RIDGELINE_BLOCK_IO_INL_H
#else
#define RIDGELINE_BLOCK_IO_INL_H
#endif

#include <hwy/highway.h>

#include <cstring>

#include "kernels/cpu/elementwise/vector_math-inl.h"
#include "ridgeline/dtype.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

HWY_INLINE int element_bytes(DType t) {
  switch (t) {
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16:
      return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return 1;
    case DType::kI64:
    case DType::kU64:
      return 8;
    default:
      return 4;
  }
}

HWY_INLINE VF round_bf16_bits(VF x) {  // to nearest even; NaN keeps its sign and becomes quiet
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  const auto bits = hn::BitCast(du, x);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::And(hn::Add(bits, hn::Add(even, hn::Set(du, 0x7fff))), hn::Set(du, 0xffff0000u));
  const auto quiet = hn::Or(hn::And(bits, hn::Set(du, 0xffff0000u)), hn::Set(du, 0x00400000u));
  return hn::IfThenElse(hn::IsNaN(x), hn::BitCast(d, quiet), hn::BitCast(d, rounded));
}

[[maybe_unused]] void load_f16(const uint16_t* from, int64_t stride, float* to, int n) {
  int i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128  // whose conversions (1.0.3) know no infinity
  const F32 d;
  const hn::Rebind<hwy::float16_t, F32> dh;
  const int lanes = int(hn::Lanes(d));
  if (stride == 1)
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::PromoteTo(d, hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from + i))), d, to + i);
#endif
  for (; i < n; ++i) to[i] = f16_to_f32(from[i * stride]);
}
[[maybe_unused]] void store_f16(const float* from, uint16_t* to, int64_t stride, int n) {
  int i = 0;
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128  // whose conversions (1.0.3) know no infinity
  const F32 d;
  const hn::Rebind<hwy::float16_t, F32> dh;
  const int lanes = int(hn::Lanes(d));
  if (stride == 1)
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, from + i)), dh, reinterpret_cast<hwy::float16_t*>(to + i));
#endif
  for (; i < n; ++i) to[i * stride] = f32_to_f16(from[i]);
}

template <typename T>
void load_as(const void* from, int64_t stride, float* to, int n) {
  const T* p = static_cast<const T*>(from);
  if (stride == 1)
    for (int i = 0; i < n; ++i) to[i] = float(p[i]);
  else
    for (int i = 0; i < n; ++i) to[i] = float(p[i * stride]);
}

// By hand: at -O2 GCC 12 leaves a loop of unknown length to scalars, one number a cycle.
template <typename T>
void load_bytes(const void* from, int64_t stride, float* to, int n) {
  const T* p = static_cast<const T*>(from);
  int i = 0;
#if HWY_TARGET != HWY_SCALAR
  const F32 d;
  const int lanes = int(hn::Lanes(d));
  if (stride == 1)
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::ConvertTo(d, hn::PromoteTo(I32(), hn::LoadU(hn::Rebind<T, F32>(), p + i))), d, to + i);
#endif
  for (; i < n; ++i) to[i] = float(p[i * stride]);
}

HWY_INLINE float widen_bf16(uint16_t bits) {
  const uint32_t wide = uint32_t(bits) << 16;
  float y;
  std::memcpy(&y, &wide, 4);
  return y;
}

[[maybe_unused]] void load_block(DType dtype, const void* from, int64_t stride, float* to, int n) {
  switch (dtype) {
    case DType::kF32: {
      const float* p = static_cast<const float*>(from);
      if (stride == 1)
        std::memcpy(to, p, size_t(n) * 4);
      else
        for (int i = 0; i < n; ++i) to[i] = p[i * stride];
      return;
    }
    case DType::kBF16: {
      const uint16_t* p = static_cast<const uint16_t*>(from);
      int i = 0;
#if HWY_TARGET != HWY_SCALAR
      const F32 d;
      const hn::RebindToUnsigned<F32> du;
      const int lanes = int(hn::Lanes(d));
      if (stride == 1)
        for (; i + lanes <= n; i += lanes) {
          const auto half = hn::LoadU(hn::Rebind<uint16_t, F32>(), p + i);
          hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, half))), d, to + i);
        }
#endif
      for (; i < n; ++i) to[i] = widen_bf16(p[i * stride]);
      return;
    }
    case DType::kF16:
      return load_f16(static_cast<const uint16_t*>(from), stride, to, n);
    case DType::kBool: {
      const uint8_t* p = static_cast<const uint8_t*>(from);
      for (int i = 0; i < n; ++i) to[i] = p[i * stride] ? 1.0f : 0.0f;
      return;
    }
    case DType::kU8:
      return load_bytes<uint8_t>(from, stride, to, n);
    case DType::kI8:
      return load_bytes<int8_t>(from, stride, to, n);
    case DType::kU16:
      return load_as<uint16_t>(from, stride, to, n);
    case DType::kI16:
      return load_as<int16_t>(from, stride, to, n);
    case DType::kU32:
      return load_as<uint32_t>(from, stride, to, n);
    case DType::kI32:
      return load_as<int32_t>(from, stride, to, n);
    case DType::kU64:
      return load_as<uint64_t>(from, stride, to, n);
    case DType::kI64:
      return load_as<int64_t>(from, stride, to, n);
    default:
      return;
  }
}

/// Whole numbers within the byte's range.
template <typename T>
HWY_INLINE void store_bytes(const float* from, T* to, int64_t stride, int n) {
  int i = 0;
#if HWY_TARGET != HWY_SCALAR
  const F32 d;
  const hn::Rebind<T, F32> d8;
  const int lanes = int(hn::Lanes(d));
  if (stride == 1)
    for (; i + lanes <= n; i += lanes)
      hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(I32(), hn::LoadU(d, from + i))), d8, to + i);
#endif
  for (; i < n; ++i) to[i * stride] = T(from[i]);
}

[[maybe_unused]] void store_block(DType dtype, const float* from, void* to, int64_t stride, int n, bool stream) {
  switch (dtype) {
    case DType::kF32: {
      float* p = static_cast<float*>(to);
      if (stride == 1 && stream) {
        const F32 d;
        const int lanes = int(hn::Lanes(d));
        int i = 0;
        while (i < n && (reinterpret_cast<uintptr_t>(p + i) & 63)) p[i] = from[i], ++i;
        for (; i + lanes <= n; i += lanes) hn::Stream(hn::LoadU(d, from + i), d, p + i);
        for (; i < n; ++i) p[i] = from[i];
      } else if (stride == 1) {
        std::memcpy(p, from, size_t(n) * 4);
      } else {
        for (int i = 0; i < n; ++i) p[i * stride] = from[i];
      }
      return;
    }
    case DType::kBF16: {
      uint16_t* p = static_cast<uint16_t*>(to);
      const hn::RebindToUnsigned<F32> du;
      int i = 0;
#if HWY_TARGET != HWY_SCALAR
      const F32 d;
      const hn::Rebind<uint16_t, F32> d16;
      const int lanes = int(hn::Lanes(d));
      if (stride == 1)
        for (; i + lanes <= n; i += lanes) {
          const auto bits = hn::BitCast(du, round_bf16_bits(hn::LoadU(d, from + i)));
          hn::StoreU(hn::TruncateTo(d16, hn::ShiftRight<16>(bits)), d16, p + i);
        }
#endif
      for (; i < n; ++i) p[i * stride] = uint16_t(hn::GetLane(hn::BitCast(du, round_bf16_bits(splat(from[i])))) >> 16);
      return;
    }
    case DType::kF16:
      return store_f16(from, static_cast<uint16_t*>(to), stride, n);
    case DType::kBool: {
      uint8_t* p = static_cast<uint8_t*>(to);
      for (int i = 0; i < n; ++i) p[i * stride] = from[i] != 0;
      return;
    }
    case DType::kU8:
      return store_bytes(from, static_cast<uint8_t*>(to), stride, n);
    case DType::kI8:
      return store_bytes(from, static_cast<int8_t*>(to), stride, n);
    default:
      return;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
