// One step of a Program over n numbers: what the block interpreter dispatches to. Included once per target.
#if defined(RIDGELINE_BLOCK_FUNCTIONS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGELINE_BLOCK_FUNCTIONS_INL_H
#undef RIDGELINE_BLOCK_FUNCTIONS_INL_H
#else
#define RIDGELINE_BLOCK_FUNCTIONS_INL_H
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cmath>

#include "kernels/cpu/elementwise/block_io-inl.h"
#include "kernels/cpu/elementwise/program_block.h"
#include "kernels/cpu/elementwise/vector_math-inl.h"
#include "kernels/cpu/elementwise/vector_periodic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

using Step = PreparedProgram::Step;
using View = PreparedProgram::View;
constexpr int kBlock = PreparedProgram::kBlock;

// n is a multiple of the vector's lanes; `to` may be one of the operands.
template <class F>
HWY_INLINE void map1(const float* a, float* to, int n, F f) {
  const F32 d;
  const int lanes = int(hn::Lanes(d));
  for (int i = 0; i < n; i += lanes) hn::StoreU(f(hn::LoadU(d, a + i)), d, to + i);
}
template <class F>
HWY_INLINE void map2(const float* a, const float* b, float* to, int n, F f) {
  const F32 d;
  const int lanes = int(hn::Lanes(d));
  for (int i = 0; i < n; i += lanes) hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, to + i);
}
template <class F>
HWY_INLINE void map3(const float* a, const float* b, const float* c, float* to, int n, F f) {
  const F32 d;
  const int lanes = int(hn::Lanes(d));
  for (int i = 0; i < n; i += lanes)
    hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::LoadU(d, c + i)), d, to + i);
}
template <class F>
void scalar1(const float* a, float* to, int n, F f) {
  for (int i = 0; i < n; ++i) to[i] = float(f(double(a[i])));
}
template <class M>
HWY_INLINE VF truth(M mask) {
  return hn::IfThenElseZero(mask, splat(1.0f));
}
// NaN is true: Highway's Ne is ordered on AVX-512, so equality is asked and turned round.
HWY_INLINE auto is_true(VF x) { return hn::Not(hn::Eq(x, hn::Zero(F32()))); }

/// Towards 0 within the range; NaN becomes 0.
HWY_INLINE VF to_byte(VF x, float low, float high) {
  const VF kept = hn::IfThenElseZero(hn::Eq(x, x), x);
  return hn::Trunc(hn::Min(hn::Max(kept, splat(low)), splat(high)));
}

float floor_mod(double a, double b) {
  const double r = std::fmod(a, b);
  if (r == 0) return float(std::copysign(r, b));
  return float((r < 0) != (b < 0) ? r + b : r);
}

[[maybe_unused]] void run_step(int op, const float* a, const float* b, const float* c, float* to, int n) {
  switch (op) {
    case kCopy:
      return map1(a, to, n, [](VF x) HWY_ATTR { return x; });
    case kToBool:
      return map1(a, to, n, [](VF x) HWY_ATTR { return truth(is_true(x)); });
    case kToU8:
      return map1(a, to, n, [](VF x) HWY_ATTR { return to_byte(x, 0.0f, 255.0f); });
    case kToI8:
      return map1(a, to, n, [](VF x) HWY_ATTR { return to_byte(x, -128.0f, 127.0f); });
    case kRoundBF16:
      return map1(a, to, n, [](VF x) HWY_ATTR { return round_bf16_bits(x); });
    case kRoundF16: {
      uint16_t narrow[kBlock];
      store_f16(a, narrow, 1, n);
      return load_f16(narrow, 1, to, n);
    }
    case kExpm1:
      return map1(a, to, n, [](VF x) HWY_ATTR { return expm1_f32(x); });
    case kGelu:
      return map1(a, to, n, [](VF x) HWY_ATTR { return gelu_f32(x); });
    case kSiLU:
      return map1(a, to, n, [](VF x) HWY_ATTR { return silu_f32(x); });
    case kHardSwish:
      return map1(a, to, n, [](VF x) HWY_ATTR { return hard_swish_f32(x); });
    default:
      break;
  }
  switch (ScalarOp(op)) {
    case ScalarOp::kAdd:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return hn::Add(x, y); });
    case ScalarOp::kSub:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return hn::Sub(x, y); });
    case ScalarOp::kMul:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return hn::Mul(x, y); });
    case ScalarOp::kDiv:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return hn::Div(x, y); });
    case ScalarOp::kMod:
      for (int i = 0; i < n; ++i) to[i] = floor_mod(a[i], b[i]);
      return;
    case ScalarOp::kFmod:
      for (int i = 0; i < n; ++i) to[i] = float(std::fmod(double(a[i]), double(b[i])));
      return;
    case ScalarOp::kPow:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return pow_f32(x, y); });
    case ScalarOp::kMin:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return min_nan(x, y); });
    case ScalarOp::kMax:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return max_nan(x, y); });
    case ScalarOp::kNeg:
      return map1(a, to, n, [](VF x) HWY_ATTR { return hn::Neg(x); });
    case ScalarOp::kAbs:
      return map1(a, to, n, [](VF x) HWY_ATTR { return hn::Abs(x); });
    case ScalarOp::kSign:
      return map1(a, to, n, [](VF x) HWY_ATTR {
        const VF zero = hn::Zero(F32());
        const VF sign = hn::Sub(truth(hn::Gt(x, zero)), truth(hn::Lt(x, zero)));
        return hn::IfThenElse(hn::IsNaN(x), x, sign);
      });
    case ScalarOp::kReciprocal:
      return map1(a, to, n, [](VF x) HWY_ATTR { return hn::Div(splat(1.0f), x); });
    case ScalarOp::kSqrt:
      return map1(a, to, n, [](VF x) HWY_ATTR { return hn::Sqrt(x); });
    case ScalarOp::kRsqrt:
      return map1(a, to, n, [](VF x) HWY_ATTR { return hn::Div(splat(1.0f), hn::Sqrt(x)); });
    case ScalarOp::kSquare:
      return map1(a, to, n, [](VF x) HWY_ATTR { return hn::Mul(x, x); });
    case ScalarOp::kExp:
      return map1(a, to, n, [](VF x) HWY_ATTR { return exp_f32(x); });
    case ScalarOp::kLog:
      return map1(a, to, n, [](VF x) HWY_ATTR { return log_f32(x); });
    case ScalarOp::kErf:
      return map1(a, to, n, [](VF x) HWY_ATTR { return erf_f32(x); });
    case ScalarOp::kErfc:
      return map1(a, to, n, [](VF x) HWY_ATTR { return erfc_f32(x); });
    case ScalarOp::kSin:
      return map1(a, to, n, [](VF x) HWY_ATTR { return sin_or_cos<0>(x); });
    case ScalarOp::kCos:
      return map1(a, to, n, [](VF x) HWY_ATTR { return sin_or_cos<1>(x); });
    // Rare in models: the C library, in double, one at a time.
    case ScalarOp::kTan:
      return scalar1(a, to, n, [](double x) { return std::tan(x); });
    case ScalarOp::kAsin:
      return scalar1(a, to, n, [](double x) { return std::asin(x); });
    case ScalarOp::kAcos:
      return scalar1(a, to, n, [](double x) { return std::acos(x); });
    case ScalarOp::kAtan:
      return scalar1(a, to, n, [](double x) { return std::atan(x); });
    case ScalarOp::kSinh:
      return scalar1(a, to, n, [](double x) { return std::sinh(x); });
    case ScalarOp::kCosh:
      return scalar1(a, to, n, [](double x) { return std::cosh(x); });
    case ScalarOp::kAsinh:
      return scalar1(a, to, n, [](double x) { return std::asinh(x); });
    case ScalarOp::kAcosh:
      return scalar1(a, to, n, [](double x) { return std::acosh(x); });
    case ScalarOp::kAtanh:
      return scalar1(a, to, n, [](double x) { return std::atanh(x); });
    case ScalarOp::kTanh:
      return map1(a, to, n, [](VF x) HWY_ATTR { return tanh_f32(x); });
    case ScalarOp::kSigmoid:
      return map1(a, to, n, [](VF x) HWY_ATTR { return sigmoid_f32(x); });
    case ScalarOp::kSoftplus:
      return map1(a, to, n, [](VF x) HWY_ATTR { return softplus_f32(x); });
    case ScalarOp::kRelu:
      return map1(a, to, n, [](VF x) HWY_ATTR { return at_least(hn::Zero(F32()), x); });
    case ScalarOp::kFloor:
      return map1(a, to, n, [](VF x) HWY_ATTR { return hn::Floor(x); });
    case ScalarOp::kCeil:
      return map1(a, to, n, [](VF x) HWY_ATTR { return hn::Ceil(x); });
    case ScalarOp::kRound:
      return map1(a, to, n, [](VF x) HWY_ATTR { return hn::Round(x); });
    case ScalarOp::kClamp:
      return map3(a, b, c, to, n, [](VF x, VF low, VF high) HWY_ATTR { return min_nan(max_nan(x, low), high); });
    case ScalarOp::kFma:
      return map3(a, b, c, to, n, [](VF x, VF y, VF z) HWY_ATTR { return hn::MulAdd(x, y, z); });
    case ScalarOp::kSelect:
      return map3(a, b, c, to, n, [](VF x, VF y, VF z) HWY_ATTR { return hn::IfThenElse(is_true(x), y, z); });
    case ScalarOp::kEqual:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return truth(hn::Eq(x, y)); });
    case ScalarOp::kLess:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return truth(hn::Lt(x, y)); });
    case ScalarOp::kLessOrEqual:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return truth(hn::Le(x, y)); });
    case ScalarOp::kGreater:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return truth(hn::Gt(x, y)); });
    case ScalarOp::kGreaterOrEqual:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return truth(hn::Ge(x, y)); });
    case ScalarOp::kAnd:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return hn::Mul(x, y); });
    case ScalarOp::kOr:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return hn::Max(x, y); });
    case ScalarOp::kXor:
      return map2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return hn::Abs(hn::Sub(x, y)); });
    case ScalarOp::kNot:
      return map1(a, to, n, [](VF x) HWY_ATTR { return hn::Sub(splat(1.0f), x); });
    case ScalarOp::kIsNan:
      return map1(a, to, n, [](VF x) HWY_ATTR { return truth(hn::IsNaN(x)); });
    case ScalarOp::kIsInf:
      return map1(a, to, n, [](VF x) HWY_ATTR { return truth(hn::IsInf(x)); });
    default:
      return;  // casts and bit operations never come here
  }
}

// ---- one step from memory to memory, past the caches

// 2 KiB ahead of the loads: a sum of two arrays of 64 MiB took 12 bytes at 10 to 14 GB/s without, 15 to 17.6 so.
constexpr int64_t kStreamAhead = 512;

template <class F>
HWY_INLINE bool stream1(const float* a, float* to, int64_t n, F f) {
  const F32 d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    hwy::Prefetch(a + i + kStreamAhead);
    hn::Stream(f(hn::LoadU(d, a + i)), d, to + i);
  }
  return true;
}
template <class F>
HWY_INLINE bool stream2(const float* a, const float* b, float* to, int64_t n, F f) {
  const F32 d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  for (int64_t i = 0; i < n; i += lanes) {
    hwy::Prefetch(a + i + kStreamAhead);
    hwy::Prefetch(b + i + kStreamAhead);
    hn::Stream(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, to + i);
  }
  return true;
}
/// `to` is aligned and n is whole lines. False: not one of the functions that are bound by memory, or nearly. Without
/// the way through L1, relu on 16 Mi numbers takes 5.1 ms instead of 5.5 where a copy takes 4.9.
[[maybe_unused]] bool stream_step(int op, const float* a, const float* b, float* to, int64_t n) {
  switch (op) {
    case kCopy:
      return stream1(a, to, n, [](VF x) HWY_ATTR { return x; });
    case kHardSwish:
      return stream1(a, to, n, [](VF x) HWY_ATTR { return hard_swish_f32(x); });
    case int(ScalarOp::kRelu):
      return stream1(a, to, n, [](VF x) HWY_ATTR { return at_least(hn::Zero(F32()), x); });
    case int(ScalarOp::kAbs):
      return stream1(a, to, n, [](VF x) HWY_ATTR { return hn::Abs(x); });
    case int(ScalarOp::kNeg):
      return stream1(a, to, n, [](VF x) HWY_ATTR { return hn::Neg(x); });
    case kGelu:
      return stream1(a, to, n, [](VF x) HWY_ATTR { return gelu_f32(x); });
    case kSiLU:
      return stream1(a, to, n, [](VF x) HWY_ATTR { return silu_f32(x); });
    case kExpm1:
      return stream1(a, to, n, [](VF x) HWY_ATTR { return expm1_f32(x); });
    case int(ScalarOp::kExp):
      return stream1(a, to, n, [](VF x) HWY_ATTR { return exp_f32(x); });
    case int(ScalarOp::kLog):
      return stream1(a, to, n, [](VF x) HWY_ATTR { return log_f32(x); });
    case int(ScalarOp::kErf):
      return stream1(a, to, n, [](VF x) HWY_ATTR { return erf_f32(x); });
    case int(ScalarOp::kTanh):
      return stream1(a, to, n, [](VF x) HWY_ATTR { return tanh_f32(x); });
    case int(ScalarOp::kSigmoid):
      return stream1(a, to, n, [](VF x) HWY_ATTR { return sigmoid_f32(x); });
    case int(ScalarOp::kSqrt):
      return stream1(a, to, n, [](VF x) HWY_ATTR { return hn::Sqrt(x); });
    case int(ScalarOp::kSquare):
      return stream1(a, to, n, [](VF x) HWY_ATTR { return hn::Mul(x, x); });
    case int(ScalarOp::kAdd):
      return stream2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return hn::Add(x, y); });
    case int(ScalarOp::kSub):
      return stream2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return hn::Sub(x, y); });
    case int(ScalarOp::kMul):
      return stream2(a, b, to, n, [](VF x, VF y) HWY_ATTR { return hn::Mul(x, y); });
    default:
      return false;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#endif  // include guard
