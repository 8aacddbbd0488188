#include "kernels/cpu/matmul/dot/dot_finish.h"

#include "kernels/cpu/matmul/dot/dot_micro.h"
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/dot/dot_finish.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
// A block's rows are whole vectors of 32 numbers, so that only loads and stores outside it need a count.
using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;

int32_t SumU8(const uint8_t* bytes, int64_t n) {
  const hn::CappedTag<uint8_t, 64> d;
  const hn::Repartition<uint64_t, decltype(d)> d64;
  auto sum = hn::Zero(d64);
  for (int64_t i = 0; i < n; i += int64_t(hn::Lanes(d))) sum = hn::Add(sum, hn::SumsOf8(hn::LoadU(d, bytes + i)));
  return int32_t(hn::GetLane(hn::SumOfLanes(d64, sum)));
}

void FinishI32(const int32_t* sums, const int32_t* row_sums, const int32_t* terms, const int32_t* zero, int rows,
               int cols, int32_t* y, int64_t ldy, bool stream) {
  const DI d;
  const int n = int(hn::Lanes(d));
  for (int r = 0; r < rows; ++r, sums += kDotColumns, y += ldy) {
    int c = 0;
    for (; c + n <= cols; c += n) {
      auto v = hn::Add(hn::LoadU(d, sums + c), hn::LoadU(d, terms + c));
      if (zero) v = hn::Sub(v, hn::Mul(hn::LoadU(d, zero + c), hn::Set(d, row_sums[r])));
      if (stream)
        hn::Stream(v, d, y + c);
      else
        hn::StoreU(v, d, y + c);
    }
    for (; c < cols; ++c) {
      const uint32_t shift = zero ? uint32_t(zero[c]) * uint32_t(row_sums[r]) : 0;
      y[c] = int32_t(uint32_t(sums[c]) + uint32_t(terms[c]) - shift);
    }
  }
}

void ScaleF32(float* sums, float alpha, const float* bias, const float* add, int64_t add_stride, float low, float high,
              int rows, int cols) {
  const DF d;
  const int n = int(hn::Lanes(d));
  const auto a = hn::Set(d, alpha), lo = hn::Set(d, low), hi = hn::Set(d, high);
  for (int r = 0; r < rows; ++r, sums += kDotColumns) {
    int c = 0;
    for (; c + n <= cols; c += n) {
      auto v = hn::Mul(hn::LoadU(d, sums + c), a);
      if (bias) v = hn::Add(v, hn::LoadU(d, bias + c));
      if (add) v = hn::Add(v, hn::LoadU(d, add + r * add_stride + c));
      v = hn::IfThenElse(hn::Lt(v, lo), lo, v);  // written so that NaN passes
      v = hn::IfThenElse(hn::Gt(v, hi), hi, v);
      hn::StoreU(v, d, sums + c);
    }
    for (; c < cols; ++c) {
      float v = sums[c] * alpha;
      if (bias) v += bias[c];
      if (add) v += add[r * add_stride + c];
      sums[c] = v < low ? low : v > high ? high : v;
    }
  }
}

void ToF32(int32_t* sums, const float* row_scale, const float* col_scale, int rows) {
  const DF d;
  const DI di;
  const int n = int(hn::Lanes(d));
  for (int r = 0; r < rows; ++r, sums += kDotColumns) {
    const auto scale = hn::Set(d, row_scale[r]);
    for (int c = 0; c < kDotColumns; c += n) {
      const auto v = hn::ConvertTo(d, hn::LoadU(di, sums + c));
      hn::StoreU(hn::BitCast(di, hn::Mul(hn::Mul(v, scale), hn::LoadU(d, col_scale + c))), di, sums + c);
    }
  }
}

template <bool kStream>
void StoreF32(const float* sums, int rows, int cols, float* y, int64_t ldy) {
  const DF d;
  const int n = int(hn::Lanes(d));
  for (int r = 0; r < rows; ++r, sums += kDotColumns, y += ldy) {
    int c = 0;
    for (; c + n <= cols; c += n) {
      if constexpr (kStream)
        hn::Stream(hn::LoadU(d, sums + c), d, y + c);
      else
        hn::StoreU(hn::LoadU(d, sums + c), d, y + c);
    }
    for (; c < cols; ++c) y[c] = sums[c];
  }
}

template <bool kStream>
void StoreBf16(const float* sums, int rows, int cols, uint16_t* y, int64_t ldy) {
  const DF d;
  const DI di;
  const hn::Rebind<uint16_t, DF> d16;
  const int n = int(hn::Lanes(d));
  for (int r = 0; r < rows; ++r, sums += kDotColumns, y += ldy) {
    for (int c = 0; c < cols; c += n) {
      // Round to even; a NaN whose upper half would be empty gets a bit.
      const auto bits = hn::BitCast(di, hn::LoadU(d, sums + c));
      const auto top = hn::ShiftRight<16>(bits);
      const auto rounded =
          hn::ShiftRight<16>(hn::Add(bits, hn::Add(hn::And(top, hn::Set(di, 1)), hn::Set(di, 0x7fff))));
      const auto nan = hn::Gt(hn::And(bits, hn::Set(di, 0x7fffffff)), hn::Set(di, 0x7f800000));
      const auto narrow = hn::And(hn::IfThenElse(nan, hn::Or(top, hn::Set(di, 0x40)), rounded), hn::Set(di, 0xffff));
      const auto v = hn::TruncateTo(d16, hn::BitCast(hn::RebindToUnsigned<DI>(), narrow));
      if (cols - c < n) {
        HWY_ALIGN uint16_t lanes[16];
        hn::StoreU(v, d16, lanes);
        for (int i = 0; i < cols - c; ++i) y[c + i] = lanes[i];
      } else if constexpr (kStream) {
        hn::Stream(v, d16, y + c);
      } else {
        hn::StoreU(v, d16, y + c);
      }
    }
  }
}

void StoreRows(const float* sums, int rows, int cols, void* y, int64_t ldy, int y_bytes, bool stream) {
  if (y_bytes == 4) {
    float* to = static_cast<float*>(y);
    return stream ? StoreF32<true>(sums, rows, cols, to, ldy) : StoreF32<false>(sums, rows, cols, to, ldy);
  }
  uint16_t* to = static_cast<uint16_t*>(y);
  stream ? StoreBf16<true>(sums, rows, cols, to, ldy) : StoreBf16<false>(sums, rows, cols, to, ldy);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(SumU8);
HWY_EXPORT(FinishI32);
HWY_EXPORT(ScaleF32);
HWY_EXPORT(ToF32);
HWY_EXPORT(StoreRows);
}  // namespace

int32_t sum_u8(const uint8_t* bytes, int64_t n) { return HWY_DYNAMIC_DISPATCH(SumU8)(bytes, n); }
void finish_i32(const int32_t* sums, const int32_t* row_sums, const int32_t* col_terms, const int32_t* zero, int rows,
                int cols, int32_t* y, int64_t ldy, bool stream) {
  HWY_DYNAMIC_DISPATCH(FinishI32)(sums, row_sums, col_terms, zero, rows, cols, y, ldy, stream);
}
void scale_f32(float* sums, float alpha, const float* bias, const float* add, int64_t add_stride, float low, float high,
               int rows, int cols) {
  HWY_DYNAMIC_DISPATCH(ScaleF32)(sums, alpha, bias, add, add_stride, low, high, rows, cols);
}
void to_f32(int32_t* sums, const float* row_scale, const float* col_scale, int rows) {
  HWY_DYNAMIC_DISPATCH(ToF32)(sums, row_scale, col_scale, rows);
}
void store_rows(const float* sums, int rows, int cols, void* y, int64_t ldy, int y_bytes, bool stream) {
  HWY_DYNAMIC_DISPATCH(StoreRows)(sums, rows, cols, y, ldy, y_bytes, stream);
}

void end_stores() { hwy::FlushStream(); }

}  // namespace ridgeline::cpu
#endif
