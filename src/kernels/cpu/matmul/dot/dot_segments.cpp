#include "kernels/cpu/matmul/dot/dot_segments.h"

#include "kernels/cpu/matmul/dot/dot_finish_x86.h"
#include "kernels/cpu/matmul/dot/dot_micro.h"
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/dot/dot_segments.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "kernels/cpu/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::CappedTag<float, 16>;
using DI = hn::RebindToSigned<DF>;
using DU = hn::RebindToUnsigned<DF>;
using D16 = hn::Rebind<uint16_t, DF>;
using DU8 = hn::Rebind<uint8_t, DF>;
using DI8 = hn::Rebind<int8_t, DF>;
using VF = hn::Vec<DF>;
using VI = hn::Vec<DI>;

// To even; a NaN keeps its sign and becomes quiet. The bits stand in the upper halves.
HWY_INLINE hn::Vec<DU> RoundedBits(VF v) {
  const DU d;
  const auto bits = hn::BitCast(d, v);
  const auto even = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const auto rounded = hn::Add(bits, hn::Add(even, hn::Set(d, 0x7fff)));
  const auto quiet = hn::Or(bits, hn::Set(d, 0x00400000u));
  return hn::IfThenElse(hn::RebindMask(d, hn::IsNaN(v)), quiet, rounded);
}
HWY_INLINE VF RoundBf16(VF v) { return hn::BitCast(DF(), hn::And(RoundedBits(v), hn::Set(DU(), 0xffff0000u))); }

// The last columns of a row go through a copy: memory beside them is not touched.
template <class D, class T>
HWY_INLINE hn::Vec<D> LoadCount(D d, const T* from, int count) {
  if (count >= int(hn::Lanes(d))) return hn::LoadU(d, from);
  alignas(64) T lanes[16] = {};
  std::memcpy(lanes, from, size_t(count) * sizeof(T));
  return hn::Load(d, lanes);
}
template <class D, class T>
HWY_INLINE void StoreCount(hn::Vec<D> v, D d, T* to, int count) {
  if (count >= int(hn::Lanes(d))) return hn::StoreU(v, d, to);
  alignas(64) T lanes[16];
  hn::Store(v, d, lanes);
  std::memcpy(to, lanes, size_t(count) * sizeof(T));
}

HWY_INLINE VF LoadAs(DType dtype, const void* from, int64_t at, int count) {
  const DF d;
  const DI di;
  switch (dtype) {
    case DType::kBF16: {
      const auto half = LoadCount(D16(), static_cast<const uint16_t*>(from) + at, count);
      return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(DU(), half)));
    }
    case DType::kU8:
      return hn::ConvertTo(d, hn::PromoteTo(di, LoadCount(DU8(), static_cast<const uint8_t*>(from) + at, count)));
    case DType::kI8:
      return hn::ConvertTo(d, hn::PromoteTo(di, LoadCount(DI8(), static_cast<const int8_t*>(from) + at, count)));
    default:
      return LoadCount(d, static_cast<const float*>(from) + at, count);
  }
}

HWY_INLINE void StoreF32(DType dtype, VF v, void* to, int64_t at, int count) {
  if (dtype == DType::kBF16)
    StoreCount(hn::TruncateTo(D16(), hn::ShiftRight<16>(RoundedBits(v))), D16(), static_cast<uint16_t*>(to) + at,
               count);
  else
    StoreCount(v, DF(), static_cast<float*>(to) + at, count);
}
HWY_INLINE void StoreLevels(VI v, void* to, int64_t at, int count) {
  StoreCount(hn::TruncateTo(DU8(), hn::BitCast(DU(), v)), DU8(), static_cast<uint8_t*>(to) + at, count);
}

HWY_INLINE VF LineAt(const DotLine& line, int64_t column, float absent) {
  if (!line.data) return hn::Set(DF(), absent);
  return line.stride ? hn::LoadU(DF(), line.data + column) : hn::Set(DF(), *line.data);
}

// A segment's numbers for one vector of columns.
struct Columns {
  VF before, scale, bias, low, high, step, inverse, least, most, r_before, r_scale, r_bias;
  VI zero;
};
HWY_INLINE Columns ColumnsOf(const DotSegment& s, int64_t column) {
  const DF d;
  return {LineAt(s.before, column, 0),
          LineAt(s.scale, column, 1),
          LineAt(s.bias, column, 0),
          hn::Set(d, s.low),
          hn::Set(d, s.high),
          hn::Set(d, s.step),
          hn::Set(d, s.inverse),
          hn::Set(d, float(s.least - s.zero)),
          hn::Set(d, float(s.most - s.zero)),
          hn::Set(d, s.r_before),
          hn::Set(d, s.r_scale),
          hn::Set(d, s.r_bias),
          hn::Set(DI(), s.zero)};
}

HWY_INLINE VF Clamped(VF v, const Columns& c) {  // so that NaN passes
  v = hn::IfThenElse(hn::Lt(v, c.low), c.low, v);
  return hn::IfThenElse(hn::Gt(v, c.high), c.high, v);
}

HWY_INLINE VF Function(DotFunction f, VF v) {
  switch (f) {
    case DotFunction::kSiLU:
      return silu_f32(v);
    case DotFunction::kHardSwish:
      return hard_swish_f32(v);
    case DotFunction::kGelu:
      return gelu_f32(v);
    case DotFunction::kSigmoid:
      return sigmoid_f32(v);
    case DotFunction::kTanh:
      return tanh_f32(v);
    default:
      return v;
  }
}

/// What comes before the quantization.
template <bool kResidual>
HWY_INLINE VF Scaled(VF v, const DotSegment& s, const Columns& c, const DotResidual& residual, int row, int column,
                     int count) {
  if (s.before.data) v = hn::Sub(v, c.before);
  if (s.fused) {
    v = hn::MulAdd(v, c.scale, c.bias);
  } else {
    if (s.scale.data) v = hn::Mul(v, c.scale);
    if (s.bias.data) v = hn::Add(v, c.bias);
  }
  if (s.round_bias) v = RoundBf16(v);
  if (kResidual) {
    VF r = LoadAs(s.residual_dtype, residual.data, row * residual.row + column, count);
    if (s.r_affine) {
      r = hn::Sub(r, c.r_before);
      r = s.r_fused ? hn::MulAdd(r, c.r_scale, c.r_bias) : hn::Add(hn::Mul(r, c.r_scale), c.r_bias);
    }
    v = hn::Add(v, r);
    if (s.round_residual) v = RoundBf16(v);
  }
  v = Function(s.function, Clamped(v, c));
  return s.round_clamp ? RoundBf16(v) : v;
}

/// The quotient is the correctly rounded one: a product with the reciprocal, mended by its remainder (Markstein). Far
/// out, where that would meet infinities, the range ends it anyway.
HWY_INLINE VI Quantized(VF v, const DotSegment& s, const Columns& c) {
  const DF d;
  const auto number = hn::Eq(v, v);
  VF q = hn::Mul(v, c.inverse);
  if (s.divides) {
    if (s.inverse != 0)
      q = hn::IfThenElse(hn::Lt(hn::Abs(q), hn::Set(d, 4096.0f)), hn::MulAdd(hn::NegMulAdd(q, c.step, v), c.inverse, q),
                         q);
    else
      q = hn::Div(v, c.step);
  }
  q = hn::Min(hn::Max(q, c.least), c.most);
  const VI levels = hn::Add(hn::NearestInt(q), c.zero);
  return hn::IfThenElseZero(hn::RebindMask(DI(), number), levels);  // NaN is stored as 0
}

template <bool kIntegers>
HWY_INLINE VF SumAt(const DotFinish& f, int row, int column, VI terms, VI zeros) {
  const int at = row * kDotColumns + column;
  if (!kIntegers) return hn::LoadU(DF(), static_cast<const float*>(f.sums) + at);
  VI v = hn::Add(hn::LoadU(DI(), static_cast<const int32_t*>(f.sums) + at), terms);
  if (f.zeros) v = hn::Sub(v, hn::Mul(zeros, hn::Set(DI(), f.row_sums[row])));
  return hn::ConvertTo(DF(), v);
}

HWY_INLINE VI IntegersAt(const int32_t* line, int column) {
  return line ? hn::LoadU(DI(), line + column) : hn::Zero(DI());
}

// ---- the frequent forms. Everything that the loop needs is local: a store of bytes may alias anything else.

// Adding this rounds half to even; the low bits of the sum are the whole number.
constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23

struct TameColumns {
  VF scale, bias, step, inverse, least, most;
};
HWY_INLINE TameColumns TameColumnsOf(const DotSegment& s, int64_t column) {
  const DF d;
  return {LineAt(s.scale, column, 1), LineAt(s.bias, column, 0),           hn::Set(d, s.step),
          hn::Set(d, s.inverse),      hn::Set(d, float(s.least - s.zero)), hn::Set(d, float(s.most - s.zero))};
}
/// The level less the zero point, in the low bits of a float.
HWY_INLINE VF TameQuotient(VF v, const TameColumns& c) {
  VF q = hn::Mul(v, c.inverse);
  q = hn::MulAdd(hn::NegMulAdd(q, c.step, v), c.inverse, q);
  return hn::Add(hn::Min(hn::Max(q, c.least), c.most), hn::Set(DF(), kMagic));
}

/// One or two tame segments over i32 sums without zero points of B; the last may have a residual of bytes.
template <bool kFused, bool kTwo, bool kResidual, typename R>
void Tame(const DotFinish& f, const DotSegment* segments) {
  const int n = int(hn::Lanes(DF())), rows = f.rows, cols = f.cols;
  const int64_t first = f.column;
  const DotSegment &one = segments[0], &last = segments[kTwo ? 1 : 0];
  const int32_t* sums = static_cast<const int32_t*>(f.sums);
  uint8_t* y = static_cast<uint8_t*>(f.y);
  const R* residual = static_cast<const R*>(f.residuals[kTwo ? 1 : 0].data);
  const int64_t y_row = f.y_row, residual_row = f.residuals[kTwo ? 1 : 0].row;
  const VI zero = hn::Set(DI(), last.zero);
  const VF shift = hn::Set(DF(), kMagic - float(one.zero)), r_before = hn::Set(DF(), last.r_before),
           r_scale = hn::Set(DF(), last.r_scale), r_bias = hn::Set(DF(), last.r_bias);
  const bool r_fused = last.r_fused;
  for (int column = 0; column < cols; column += n) {
    const int count = cols - column < n ? cols - column : n;
    const VI terms = IntegersAt(f.terms, column);
    const TameColumns c = TameColumnsOf(one, first + column), c2 = TameColumnsOf(last, first + column);
    const VF before = LineAt(last.before, first + column, 0);
    for (int row = 0; row < rows; ++row) {
      VF v = hn::ConvertTo(DF(), hn::Add(hn::LoadU(DI(), sums + row * kDotColumns + column), terms));
      v = kFused ? hn::MulAdd(v, c.scale, c.bias) : hn::Add(hn::Mul(v, c.scale), c.bias);
      if (kTwo) {
        v = hn::Sub(hn::Sub(TameQuotient(v, c), shift), before);
        v = hn::Add(hn::Mul(v, c2.scale), c2.bias);
      }
      if (kResidual) {
        const auto bytes = LoadCount(hn::Rebind<R, DF>(), residual + row * residual_row + column, count);
        const VF r = hn::Sub(hn::ConvertTo(DF(), hn::PromoteTo(DI(), bytes)), r_before);
        v = hn::Add(v, r_fused ? hn::MulAdd(r, r_scale, r_bias) : hn::Add(hn::Mul(r, r_scale), r_bias));
      }
      const VI level = hn::Add(hn::BitCast(DI(), TameQuotient(v, c2)), zero);
      StoreLevels(level, y, row * y_row + column, count);  // their low bytes
    }
  }
}

template <typename R>
void TameOf(const DotFinish& f, const DotSegment* s, bool two) {
  const bool fused = s[0].fused, residual = s[two ? 1 : 0].has_residual;
  if (two)
    residual ? fused ? Tame<true, true, true, R>(f, s) : Tame<false, true, true, R>(f, s)
    : fused ? Tame<true, true, false, R>(f, s)
             : Tame<false, true, false, R>(f, s);
  else
    residual ? fused ? Tame<true, false, true, R>(f, s) : Tame<false, false, true, R>(f, s)
    : fused ? Tame<true, false, false, R>(f, s)
             : Tame<false, false, false, R>(f, s);
}

/// False: the segments are not of that form.
bool RunTame(const DotFinish& f, const DotSegment* s, int count) {
  if (!f.integers || f.zeros || count < 1 || count > 2 || s[0].before.data) return false;
  for (int k = 0; k < count; ++k)
    if (!s[k].tame) return false;
  if (count == 2 && (s[0].has_residual || s[1].fused)) return false;
  const DotSegment& last = s[count - 1];
  if (dot_rows_to_bytes(f, s, count == 2)) return true;
  if (last.has_residual && last.residual_dtype == DType::kI8)
    TameOf<int8_t>(f, s, count == 2);
  else
    TameOf<uint8_t>(f, s, count == 2);
  return true;
}

/// v + bias + a residual of bf16, at least `low`; or v + bias, the function, and (kAfter) the second segment's scale
/// and bias in one rounding; to bf16.
template <bool kResidual, bool kLow, DotFunction kFunction = DotFunction::kNone, bool kAfter = false>
void ToBf16(const DotFinish& f, const DotSegment* segments) {
  const DotSegment& s = segments[0];
  const int n = int(hn::Lanes(DF())), rows = f.rows, cols = f.cols;
  const int64_t first = f.column;
  const float* sums = static_cast<const float*>(f.sums);
  uint16_t* y = static_cast<uint16_t*>(f.y);
  const int64_t y_row = f.y_row, residual_row = f.residuals[0].row;
  const uint16_t* residual = static_cast<const uint16_t*>(f.residuals[0].data);
  const VF low = hn::Set(DF(), s.low);
  const bool rounds = s.round_bias;
  for (int column = 0; column < cols; column += n) {
    const int count = cols - column < n ? cols - column : n;
    const VF bias = LineAt(s.bias, first + column, 0);
    const VF scale = kAfter ? LineAt(segments[1].scale, first + column, 1) : bias;
    const VF shift = kAfter ? LineAt(segments[1].bias, first + column, 0) : bias;
    for (int row = 0; row < rows; ++row) {
      VF v = hn::Add(hn::LoadU(DF(), sums + row * kDotColumns + column), bias);
      if (kResidual) {
        if (rounds) v = RoundBf16(v);
        const auto half = LoadCount(D16(), residual + row * residual_row + column, count);
        v = hn::Add(v, hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(DU(), half))));
      }
      if (kLow) v = hn::IfThenElse(hn::Lt(v, low), low, v);
      v = Function(kFunction, v);
      if (kAfter) v = hn::MulAdd(v, scale, shift);
      StoreCount(hn::TruncateTo(D16(), hn::ShiftRight<16>(RoundedBits(v))), D16(), y + row * y_row + column, count);
    }
  }
}
/// Those of a finish from f32 to bf16 whose only segment may have a residual.
void SkipRows(DotFinish& f, bool residual, int rows) {
  f.sums = static_cast<const float*>(f.sums) + int64_t(rows) * kDotColumns;
  f.y = static_cast<uint16_t*>(f.y) + rows * f.y_row;
  if (residual) f.residuals[0].data = static_cast<const uint16_t*>(f.residuals[0].data) + rows * f.residuals[0].row;
  f.rows -= rows;
}
template <DotFunction kFunction>
void FunctionToBf16(const DotFinish& f, const DotSegment* segments, bool after) {
  after ? ToBf16<false, false, kFunction, true>(f, segments) : ToBf16<false, false, kFunction>(f, segments);
}
bool RunToBf16(const DotFinish& f, const DotSegment* segments, int count) {
  const DotSegment &s = segments[0], &last = segments[count - 1];
  if (count > 2 || f.integers || f.y_dtype != DType::kBF16 || s.before.data || s.scale.data || s.fused) return false;
  if (s.quantizes || s.round_residual || s.round_clamp || s.high < std::numeric_limits<float>::infinity()) return false;
  const bool low = s.low > -std::numeric_limits<float>::infinity(), after = count == 2;
  if (after &&
      (!last.fused || last.before.data || last.has_residual || last.function != DotFunction::kNone || last.round_bias ||
       last.round_residual || last.round_clamp || last.quantizes ||
       last.low > -std::numeric_limits<float>::infinity() || last.high < std::numeric_limits<float>::infinity()))
    return false;
  if (s.function == DotFunction::kNone) {
    if (after || (s.round_bias && !s.has_residual)) return false;
    if (s.has_residual && (s.residual_dtype != DType::kBF16 || s.r_affine)) return false;
    DotFinish left = f;
    for (int done = 0; left.rows > 0;) {  // a row with subnormals, then on
      done = dot_rows_to_bf16(left, s);
      SkipRows(left, s.has_residual, done);
      if (left.rows == 0) break;
      DotFinish some = left;
      if (done > 0) some.rows = 1;
      if (s.has_residual)
        low ? ToBf16<true, true>(some, segments) : ToBf16<true, false>(some, segments);
      else
        low ? ToBf16<false, true>(some, segments) : ToBf16<false, false>(some, segments);
      SkipRows(left, s.has_residual, some.rows);
    }
    return true;
  }
  if (low || s.has_residual || s.round_bias) return false;
  switch (s.function) {
    case DotFunction::kSiLU:
      return FunctionToBf16<DotFunction::kSiLU>(f, segments, after), true;
    case DotFunction::kHardSwish:
      return FunctionToBf16<DotFunction::kHardSwish>(f, segments, after), true;
    case DotFunction::kGelu:
      return FunctionToBf16<DotFunction::kGelu>(f, segments, after), true;
    default:
      return false;
  }
}

// ---- any form

template <bool kIntegers, bool kResidual, bool kQuantizes>
void OneSegment(const DotFinish& given, const DotSegment& segment) {
  const DotFinish f = given;
  const DotSegment s = segment;
  const int n = int(hn::Lanes(DF()));
  for (int column = 0; column < f.cols; column += n) {
    const int count = f.cols - column < n ? f.cols - column : n;
    const Columns c = ColumnsOf(s, f.column + column);
    const VI terms = IntegersAt(f.terms, column), zeros = IntegersAt(f.zeros, column);
    for (int row = 0; row < f.rows; ++row) {
      const VF v =
          Scaled<kResidual>(SumAt<kIntegers>(f, row, column, terms, zeros), s, c, f.residuals[0], row, column, count);
      const int64_t at = row * f.y_row + column;
      if (kQuantizes)
        StoreLevels(Quantized(v, s, c), f.y, at, count);
      else
        StoreF32(f.y_dtype, v, f.y, at, count);
    }
  }
}

template <bool kIntegers>
void ManySegments(const DotFinish& f, const DotSegment* segments, int segment_count) {
  const int n = int(hn::Lanes(DF()));
  for (int column = 0; column < f.cols; column += n) {
    const int count = f.cols - column < n ? f.cols - column : n;
    const VI terms = IntegersAt(f.terms, column), zeros = IntegersAt(f.zeros, column);
    Columns all[kMostDotSegments];
    for (int k = 0; k < segment_count; ++k) all[k] = ColumnsOf(segments[k], f.column + column);
    for (int row = 0; row < f.rows; ++row) {
      VF v = SumAt<kIntegers>(f, row, column, terms, zeros);
      VI levels = hn::Zero(DI());
      for (int k = 0; k < segment_count; ++k) {
        const DotSegment& s = segments[k];
        v = s.has_residual ? Scaled<true>(v, s, all[k], f.residuals[k], row, column, count)
                           : Scaled<false>(v, s, all[k], f.residuals[k], row, column, count);
        if (!s.quantizes) continue;
        levels = Quantized(v, s, all[k]);
        v = hn::ConvertTo(DF(), levels);
      }
      const int64_t at = row * f.y_row + column;
      if (segment_count > 0 && segments[segment_count - 1].quantizes)
        StoreLevels(levels, f.y, at, count);
      else
        StoreF32(f.y_dtype, v, f.y, at, count);
    }
  }
}

template <bool kIntegers>
void OneOf(const DotFinish& f, const DotSegment& s) {
  if (s.has_residual)
    s.quantizes ? OneSegment<kIntegers, true, true>(f, s) : OneSegment<kIntegers, true, false>(f, s);
  else
    s.quantizes ? OneSegment<kIntegers, false, true>(f, s) : OneSegment<kIntegers, false, false>(f, s);
}

void Segments(const DotFinish& f, const DotSegment* segments, int count) {
  if (RunTame(f, segments, count) || (count > 0 && RunToBf16(f, segments, count))) return;
  if (count == 1) return f.integers ? OneOf<true>(f, *segments) : OneOf<false>(f, *segments);
  return f.integers ? ManySegments<true>(f, segments, count) : ManySegments<false>(f, segments, count);
}

void SumsToF32(const DotFinish& f) {
  const int n = int(hn::Lanes(DF()));
  float* to = static_cast<float*>(const_cast<void*>(f.sums));
  for (int column = 0; column < f.cols; column += n) {
    const VI terms = IntegersAt(f.terms, column), zeros = IntegersAt(f.zeros, column);
    for (int row = 0; row < f.rows; ++row)
      hn::StoreU(SumAt<true>(f, row, column, terms, zeros), DF(), to + row * kDotColumns + column);
  }
}

void StoreRows(const DotFinish& f) {
  const int n = int(hn::Lanes(DF()));
  for (int row = 0; row < f.rows; ++row) {
    for (int column = 0; column < f.cols; column += n) {
      const int count = f.cols - column < n ? f.cols - column : n;
      const VF v = hn::LoadU(DF(), static_cast<const float*>(f.sums) + row * kDotColumns + column);
      const int64_t at = row * f.y_row + column;
      if (f.y_dtype == DType::kU8 || f.y_dtype == DType::kI8)
        StoreLevels(hn::ConvertTo(DI(), v), f.y, at, count);
      else
        StoreF32(f.y_dtype, v, f.y, at, count);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(Segments);
HWY_EXPORT(SumsToF32);
HWY_EXPORT(StoreRows);
}  // namespace

void dot_finish_segments(const DotFinish& finish, const DotSegment* segments, int count) {
  HWY_DYNAMIC_DISPATCH(Segments)(finish, segments, count);
}
void dot_sums_to_f32(const DotFinish& finish) { HWY_DYNAMIC_DISPATCH(SumsToF32)(finish); }
void dot_store_rows(const DotFinish& finish) { HWY_DYNAMIC_DISPATCH(StoreRows)(finish); }

}  // namespace ridgeline::cpu
#endif
