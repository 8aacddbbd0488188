// The block interpreter: loads operands as f32, runs the steps over 256 elements each, stores.
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise/block_steps.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstring>

#include "kernels/cpu/elementwise/block_io-inl.h"
#include "kernels/cpu/elementwise/program_block.h"
#include "kernels/cpu/elementwise/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

using Step = PreparedProgram::Step;
using View = PreparedProgram::View;
constexpr int kBlock = PreparedProgram::kBlock;

// ---- steps

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
  return float(r != 0 && ((r < 0) != (b < 0)) ? r + b : r);
}

void run_step(int op, const float* a, const float* b, const float* c, float* to, int n) {
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
bool stream_step(int op, const float* a, const float* b, float* to, int64_t n) {
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

// ---- blocks

/// Slots live on the stack; only those that are used are touched.
struct Slots {
  HWY_ALIGN float memory[PreparedProgram::kMostSlots][kBlock];
  const float* at[PreparedProgram::kMostSlots];
};

void fill(float* to, float value, int n) {
  const F32 d;
  for (int i = 0; i < n; i += int(hn::Lanes(d))) hn::Store(splat(value), d, to + i);
}

/// Makes the operand at `from` readable as n whole vectors: in place if it is contiguous f32 and n fills its vectors.
HWY_INLINE void bind_input(DType dtype, const void* from, int64_t stride, int slot, Slots& s, int n, int padded) {
  if (dtype == DType::kF32 && stride == 1 && n == padded) {
    s.at[slot] = static_cast<const float*>(from);
    return;
  }
  s.at[slot] = s.memory[slot];
  load_block(dtype, from, stride, s.memory[slot], n);
  for (int i = n; i < padded; ++i) s.memory[slot][i] = 0;  // what lies there might be denormal, hence slow
}

HWY_INLINE void run_steps(const View& v, Slots& s, int padded, float* direct) {
  for (int k = 0; k < v.step_count; ++k) {
    const Step& step = v.steps[k];
    float* to = direct && k + 1 == v.step_count ? direct : s.memory[step.dst];
    run_step(step.op, s.at[step.a], step.b >= 0 ? s.at[step.b] : nullptr, step.c >= 0 ? s.at[step.c] : nullptr, to,
             padded);
  }
}

HWY_INLINE int pad(int n) {
  const int lanes = int(hn::Lanes(F32()));
  return (n + lanes - 1) / lanes * lanes;
}

/// Reads input k of the tile's block at (i, j).
HWY_INLINE void bind_tile_input(DType dtype, const TileInput& o, int k, Slots& s, int64_t i, int64_t j, int count,
                                int padded) {
  const char* from = static_cast<const char*>(o.data) + (i * o.row_stride + j * o.col_stride) * element_bytes(dtype);
  if (o.col_stride != 0) return bind_input(dtype, from, o.col_stride, k, s, count, padded);
  float value;
  load_block(dtype, from, 1, &value, 1);
  s.at[k] = s.memory[k];
  fill(s.memory[k], value, padded);
}

void tile(const View& v, int64_t rows, int64_t cols, const TileInput* inputs, const TileOutput* outputs);

/// A single step between contiguous rows of f32 whose output is streamed; the ends that are no whole lines go through
/// tile(). False: it is not that.
bool stream_rows(const View& v, int64_t rows, int64_t cols, const TileInput* inputs, const TileOutput& out) {
  if (!out.stream || out.col_stride != 1 || v.step_count != 1 || v.input_count > 2 || !v.last_is_output || cols < 64)
    return false;
  if (v.output_count != 1 || v.outputs[0].dtype != DType::kF32) return false;
  const Step& step = v.steps[0];
  if (step.a >= v.input_count || step.b >= v.input_count || step.c >= 0) return false;
  for (int k = 0; k < v.input_count; ++k)
    if (v.inputs[k].dtype != DType::kF32 || inputs[k].col_stride != 1) return false;
  for (int64_t i = 0; i < rows; ++i) {
    float* to = static_cast<float*>(out.data) + i * out.row_stride;
    const float* from[2] = {};
    for (int k = 0; k < v.input_count; ++k)
      from[k] = static_cast<const float*>(inputs[k].data) + i * inputs[k].row_stride;
    const int64_t head = int64_t(-(reinterpret_cast<intptr_t>(to) >> 2) & 15), lines = (cols - head) / 16 * 16;
    if (!stream_step(step.op, from[step.a] + head, step.b >= 0 ? from[step.b] + head : nullptr, to + head, lines))
      return false;
    const int64_t begins[2] = {0, head + lines};
    for (const int64_t begin : begins) {
      TileInput end[2];
      for (int k = 0; k < v.input_count; ++k) end[k] = {from[k] + begin, 0, 1};
      const TileOutput end_out = {to + begin, 0, 1, false};
      const int64_t count = begin == 0 ? head : cols - begin;
      if (count > 0) tile(v, 1, count, end, &end_out);
    }
  }
  hwy::FlushStream();  // before another thread is told
  return true;
}

/// All of a tile, block of columns by block of columns. What does not change with the row is prepared once a block.
void tile(const View& v, int64_t rows, int64_t cols, const TileInput* inputs, const TileOutput* outputs) {
  if (stream_rows(v, rows, cols, inputs, outputs[0])) return;
  Slots s;
  for (int i = 0; i < v.slot_count; ++i) s.at[i] = s.memory[i];
  const int widest = pad(cols < kBlock ? int(cols) : kBlock);
  for (int i = 0; i < v.constant_count; ++i) fill(s.memory[v.input_count + i], v.constants[i], widest);
  // A single row is walked as one; several rows by columns of blocks, unless none of the operands would gain by it.
  bool shared_row = false;
  for (int k = 0; k < v.input_count; ++k) {
    if (inputs[k].row_stride == 0 && inputs[k].col_stride == 0)
      bind_tile_input(v.inputs[k].dtype, inputs[k], k, s, 0, 0, widest, widest);
    else if (inputs[k].row_stride == 0 && rows > 1)
      shared_row |= v.inputs[k].dtype != DType::kF32 || inputs[k].col_stride != 1;
  }
  const bool direct =
      v.last_is_output && v.outputs[0].dtype == DType::kF32 && outputs[0].col_stride == 1 && !outputs[0].stream;
  auto block = [&](int64_t i, int64_t j, bool first) HWY_ATTR {
    const int count = cols - j < kBlock ? int(cols - j) : kBlock;
    const int padded = pad(count);
    for (int k = 0; k < v.input_count; ++k) {
      const TileInput& o = inputs[k];
      if (o.row_stride == 0 && (o.col_stride == 0 || !first)) continue;
      bind_tile_input(v.inputs[k].dtype, o, k, s, i, j, count, padded);
    }
    const TileOutput& out = outputs[0];
    const bool in_memory = direct && count == padded;
    run_steps(v, s, padded, in_memory ? static_cast<float*>(out.data) + i * out.row_stride + j : nullptr);
    if (in_memory) return;
    for (int k = 0; k < v.output_count; ++k) {
      const TileOutput& o = outputs[k];
      char* to = static_cast<char*>(o.data) + (i * o.row_stride + j * o.col_stride) * element_bytes(v.outputs[k].dtype);
      store_block(v.outputs[k].dtype, s.at[v.outputs[k].slot], to, o.col_stride, count, o.stream);
    }
  };
  if (cols <= kBlock || shared_row) {
    for (int64_t j = 0; j < cols; j += kBlock)
      for (int64_t i = 0; i < rows; ++i) block(i, j, i == 0);
  } else {
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; j += kBlock) block(i, j, true);
  }
  if (outputs[0].stream) hwy::FlushStream();  // before another thread is told
}

/// The accumulator's form: input 0 and output 0 are c, f32 whatever the program calls them.
void epilogue(const View& v, float* c, int64_t ldc, int64_t rows, int64_t cols, const TileInput* operands) {
  TileInput inputs[PreparedProgram::kMostSlots];
  PreparedProgram::Value values[PreparedProgram::kMostSlots], result = {v.outputs[0].slot, DType::kF32};
  for (int k = 0; k < v.input_count; ++k) {
    inputs[k] = k == 0 ? TileInput{c, ldc, 1} : operands[k - 1];
    values[k] = v.inputs[k];
  }
  values[0].dtype = DType::kF32;
  View as_f32 = v;
  as_f32.inputs = values;
  as_f32.outputs = &result;
  const TileOutput out = {c, ldc, 1, false};
  tile(as_f32, rows, cols, inputs, &out);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {

HWY_EXPORT(tile);
HWY_EXPORT(epilogue);

void run_tile(const PreparedProgram& program, int64_t rows, int64_t cols, const TileInput* inputs,
              const TileOutput* outputs) {
  if (rows > 0 && cols > 0) HWY_DYNAMIC_DISPATCH(tile)(program.view(), rows, cols, inputs, outputs);
}

void run_block(const PreparedProgram& program, int64_t n, const BlockInput* inputs, const BlockOutput* outputs) {
  TileInput in[PreparedProgram::kMostSlots];
  TileOutput out[PreparedProgram::kMostSlots];
  for (int k = 0; k < program.inputs(); ++k) in[k] = {inputs[k].data, 0, inputs[k].stride};
  for (int k = 0; k < program.outputs(); ++k) out[k] = {outputs[k].data, 0, outputs[k].stride, outputs[k].stream};
  run_tile(program, 1, n, in, out);
}

void apply_epilogue(const PreparedProgram& program, float* c, int64_t ldc, int64_t rows, int64_t cols,
                    const TileInput* operands) {
  if (rows > 0 && cols > 0) HWY_DYNAMIC_DISPATCH(epilogue)(program.view(), c, ldc, rows, cols, operands);
}

void apply_epilogue(const PreparedProgram& program, float* row, int64_t n, const BlockInput* operands) {
  TileInput tile[PreparedProgram::kMostSlots];
  for (int k = 0; k + 1 < program.inputs(); ++k) tile[k] = {operands[k].data, 0, operands[k].stride};
  apply_epilogue(program, row, n, 1, n, tile);
}

}  // namespace ridgeline::cpu
#endif
