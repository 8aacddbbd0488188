#include "kernels/cpu/matmul/dot/dot_rows.h"

#include <cstring>

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/dot/dot_rows.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void Flip(const uint8_t* from, int64_t n, uint8_t* to) {
  const hn::CappedTag<uint8_t, 64> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::Xor(hn::LoadU(d, from + i), hn::Set(d, uint8_t(0x80))), d, to + i);
  for (; i < n; ++i) to[i] = uint8_t(from[i] ^ 0x80);
}

// Round to even; a NaN whose upper half would be empty gets a bit.
void ToBf16(const float* from, int64_t n, uint16_t* to) {
  const hn::CappedTag<uint32_t, 16> d;
  const hn::Rebind<uint16_t, decltype(d)> d16;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto bits = hn::LoadU(d, reinterpret_cast<const uint32_t*>(from + i));
    const auto top = hn::ShiftRight<16>(bits);
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::And(top, hn::Set(d, 1)), hn::Set(d, 0x7fff))));
    const auto nan = hn::Gt(hn::And(bits, hn::Set(d, 0x7fffffffu)), hn::Set(d, 0x7f800000u));
    hn::StoreU(hn::TruncateTo(d16, hn::IfThenElse(nan, hn::Or(top, hn::Set(d, 0x40)), rounded)), d16, to + i);
  }
  for (; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, 4);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    to[i] = uint16_t((bits & 0x7fffffff) > 0x7f800000 ? (bits >> 16) | 0x40 : rounded);
  }
}

void Scatter(const uint8_t* row, int64_t blocks, uint8_t* to) {
  const hn::CappedTag<uint8_t, 64> d;
  const int lanes = int(hn::Lanes(d));
  for (int64_t b = 0; b < blocks; ++b, row += 64, to += 1024)
    for (int i = 0; i < 64; i += lanes) hn::StoreU(hn::LoadU(d, row + i), d, to + i);
}

void CopyLines(const uint8_t* from, int64_t stride, int64_t count, int bytes, bool flips, uint8_t* to) {
  const hn::CappedTag<uint8_t, 64> d;
  const int lanes = int(hn::Lanes(d));
  if (bytes == 64 && !flips) {
    for (int64_t j = 0; j < count; ++j, from += stride, to += 64)
      for (int i = 0; i < 64; i += lanes) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    return;
  }
#if HWY_TARGET == HWY_AVX3  // whose masked loads of bytes touch no others
  const auto wanted = hn::FirstN(d, size_t(bytes));
  const auto flip = hn::IfThenElseZero(wanted, hn::Set(d, uint8_t(flips ? 0x80 : 0)));
  for (int64_t j = 0; j < count; ++j, from += stride, to += 64)
    hn::StoreU(hn::Xor(hn::MaskedLoad(wanted, d, from), flip), d, to);
#else
  for (int64_t j = 0; j < count; ++j, from += stride, to += 64) {
    if (flips)
      Flip(from, bytes, to);
    else
      std::memcpy(to, from, size_t(bytes));
    std::memset(to + bytes, 0, size_t(64 - bytes));
  }
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(Flip);
HWY_EXPORT(ToBf16);
HWY_EXPORT(Scatter);
HWY_EXPORT(CopyLines);
}  // namespace

void dot_copy_row(DotType type, const void* source, DType dtype, int64_t k, uint8_t* to, int64_t padded) {
  const int64_t bytes = k * (type == DotType::kBf16 ? 2 : 1);
  if (dtype == DType::kI8)
    HWY_DYNAMIC_DISPATCH(Flip)(static_cast<const uint8_t*>(source), k, to);
  else if (dtype == DType::kF32)
    HWY_DYNAMIC_DISPATCH(ToBf16)(static_cast<const float*>(source), k, reinterpret_cast<uint16_t*>(to));
  else
    std::memcpy(to, source, size_t(bytes));
  std::memset(to + bytes, 0, size_t(padded - bytes));
}
void dot_scatter_row(const uint8_t* row, int64_t blocks, uint8_t* to) {
  HWY_DYNAMIC_DISPATCH(Scatter)(row, blocks, to);
}
void dot_copy_lines(const uint8_t* from, int64_t stride, int64_t count, int bytes, bool flips, uint8_t* to) {
  HWY_DYNAMIC_DISPATCH(CopyLines)(from, stride, count, bytes, flips, to);
}

}  // namespace ridgeline::cpu
#endif
