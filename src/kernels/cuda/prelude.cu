// What every kernel of ours stands on: 16-bit floats, conversions, and the operations of a Program as the reference means
// them (src/ir/program_evaluate.cpp). No header is included: NVRTC knows the functions of libdevice by itself.

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }
__device__ __forceinline__ float not_a_number() { return __int_as_float(0x7fc00000); }

__device__ __forceinline__ float load_value(float x) { return x; }
__device__ __forceinline__ double load_value(double x) { return x; }
__device__ __forceinline__ float load_value(bf16 x) { return __uint_as_float(u32(x.bits) << 16); }
__device__ __forceinline__ float load_value(f16 x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
template <typename T>
__device__ __forceinline__ T load_value(T x) { return x; }

template <typename T, typename V>
__device__ __forceinline__ T store_value(V x) { return T(x); }
template <>
__device__ __forceinline__ bf16 store_value<bf16, float>(float x) {
  bf16 y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
template <>
__device__ __forceinline__ f16 store_value<f16, float>(float x) {
  f16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
__device__ __forceinline__ float round_to_bf16(float x) { return load_value(store_value<bf16>(x)); }
__device__ __forceinline__ float round_to_f16(float x) { return load_value(store_value<f16>(x)); }

// Floats to integers truncate and saturate; everything else as C++ converts (integers wrap).
template <typename T> struct Whole { static constexpr bool value = false; };
#define RIDGELINE_WHOLE(T, LOW, HIGH)                       \
  template <> struct Whole<T> {                             \
    static constexpr bool value = true;                     \
    static constexpr double low = LOW, high = HIGH;         \
  };
RIDGELINE_WHOLE(signed char, -128.0, 127.0)
RIDGELINE_WHOLE(unsigned char, 0.0, 255.0)
RIDGELINE_WHOLE(short, -32768.0, 32767.0)
RIDGELINE_WHOLE(unsigned short, 0.0, 65535.0)
RIDGELINE_WHOLE(int, -2147483648.0, 2147483647.0)
RIDGELINE_WHOLE(unsigned, 0.0, 4294967295.0)
template <typename T, typename V>
struct Cast {
  static __device__ __forceinline__ T of(V x) { return T(x); }
};
template <typename T>
struct Cast<T, double> {
  static __device__ __forceinline__ T of(double x) {
    if constexpr (Whole<T>::value) {
      const double y = trunc(x);
      return y != y ? T(0) : y <= Whole<T>::low ? T(Whole<T>::low) : y >= Whole<T>::high ? T(Whole<T>::high) : T(y);
    } else {
      return T(x);
    }
  }
};
template <typename T>
struct Cast<T, float> {
  static __device__ __forceinline__ T of(float x) {
    if constexpr (Whole<T>::value) return Cast<T, double>::of(double(x));
    else return T(x);
  }
};
template <> struct Cast<bool, float> { static __device__ __forceinline__ bool of(float x) { return x != 0; } };
template <> struct Cast<bool, double> { static __device__ __forceinline__ bool of(double x) { return x != 0; } };
template <> struct Cast<i64, float> { static __device__ __forceinline__ i64 of(float x) { return __float2ll_rz(x); } };
template <> struct Cast<i64, double> { static __device__ __forceinline__ i64 of(double x) { return __double2ll_rz(x); } };
template <> struct Cast<u64, float> { static __device__ __forceinline__ u64 of(float x) { return __float2ull_rz(x); } };
template <> struct Cast<u64, double> { static __device__ __forceinline__ u64 of(double x) { return __double2ull_rz(x); } };
template <typename T, typename V>
__device__ __forceinline__ T cast(V x) { return Cast<T, V>::of(x); }

#define RIDGELINE_UNARY(NAME, FLOAT, DOUBLE)                                   \
  __device__ __forceinline__ float op_##NAME(float a) { return FLOAT; }        \
  __device__ __forceinline__ double op_##NAME(double a) { return DOUBLE; }
RIDGELINE_UNARY(abs, fabsf(a), fabs(a))
RIDGELINE_UNARY(sign, a != a ? a : float((a > 0) - (a < 0)), a != a ? a : double((a > 0) - (a < 0)))
RIDGELINE_UNARY(reciprocal, 1.0f / a, 1.0 / a)
RIDGELINE_UNARY(sqrt, sqrtf(a), sqrt(a))
RIDGELINE_UNARY(rsqrt, rsqrtf(a), rsqrt(a))
RIDGELINE_UNARY(exp, expf(a), exp(a))
RIDGELINE_UNARY(log, logf(a), log(a))
RIDGELINE_UNARY(erf, erff(a), erf(a))
RIDGELINE_UNARY(erfc, erfcf(a), erfc(a))
RIDGELINE_UNARY(sin, sinf(a), sin(a))
RIDGELINE_UNARY(cos, cosf(a), cos(a))
RIDGELINE_UNARY(tan, tanf(a), tan(a))
RIDGELINE_UNARY(asin, asinf(a), asin(a))
RIDGELINE_UNARY(acos, acosf(a), acos(a))
RIDGELINE_UNARY(atan, atanf(a), atan(a))
RIDGELINE_UNARY(sinh, sinhf(a), sinh(a))
RIDGELINE_UNARY(cosh, coshf(a), cosh(a))
RIDGELINE_UNARY(tanh, tanhf(a), tanh(a))
RIDGELINE_UNARY(asinh, asinhf(a), asinh(a))
RIDGELINE_UNARY(acosh, acoshf(a), acosh(a))
RIDGELINE_UNARY(atanh, atanhf(a), atanh(a))
RIDGELINE_UNARY(floor, floorf(a), floor(a))
RIDGELINE_UNARY(ceil, ceilf(a), ceil(a))
RIDGELINE_UNARY(round, rintf(a), rint(a))
// exp(-|a|) never overflows; for a < 0 the quotient is e / (1 + e).
RIDGELINE_UNARY(sigmoid, a >= 0 ? 1.0f / (1.0f + expf(-a)) : expf(a) / (1.0f + expf(a)),
                a >= 0 ? 1.0 / (1.0 + exp(-a)) : exp(a) / (1.0 + exp(a)))
RIDGELINE_UNARY(softplus, a > 0 ? a + log1pf(expf(-a)) : log1pf(expf(a)), a > 0 ? a + log1p(exp(-a)) : log1p(exp(a)))
RIDGELINE_UNARY(relu, a != a ? a : fmaxf(a, 0.0f), a != a ? a : fmax(a, 0.0))
// Where the result is rounded to 16 bits: the normal distribution's upper tail over its density, a polynomial in
// 1 / (1 + 0.4 a), within 1e-4 of it for all a >= 0 (fitted to the relative error; a unit of f16 is ten times that). erfcf
// takes some 40 instructions and parts the threads of a warp, this takes 12.
__device__ __forceinline__ float normal_tail_ratio(float a) {
  float t;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(fmaf(0.4f, a, 1.0f)));
  return t * fmaf(t, fmaf(t, fmaf(t, fmaf(t, -0.08475273f, 0.14403552f), 0.120588f), 0.16050908f), 0.15957287f);
}
__device__ __forceinline__ float exp2_16(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float op_erfc_16(float z) {
  const float tail = 2.0f * exp2_16(z * z * -1.4426950408889634f) * normal_tail_ratio(fabsf(z) * 1.4142135623730951f);
  return z < 0 ? 2.0f - tail : tail;
}
// x * 0.5 * erfc(-x / sqrt(2)) is x less |x| times the tail beyond |x|, or minus that.
__device__ __forceinline__ float op_gelu_16(float x) {
  const float a = fabsf(x), tail = a * exp2_16(x * x * -0.72134752044448170f) * normal_tail_ratio(a);
  return x > 20.0f ? x : fmaxf(x, 0.0f) - tail;
}
__device__ __forceinline__ bool op_isnan(float a) { return a != a; }
__device__ __forceinline__ bool op_isnan(double a) { return a != a; }
__device__ __forceinline__ bool op_isinf(float a) { return fabsf(a) == infinity(); }
__device__ __forceinline__ bool op_isinf(double a) { return fabs(a) == double(infinity()); }

// NaN in either operand is the result; whole numbers compare as their type does.
template <typename T>
__device__ __forceinline__ T op_min(T a, T b) { return a != a ? a : b != b ? b : a < b ? a : b; }
template <typename T>
__device__ __forceinline__ T op_max(T a, T b) { return a != a ? a : b != b ? b : a < b ? b : a; }
template <typename T>
__device__ __forceinline__ T op_clamp(T a, T b, T c) { return op_min(op_max(a, b), c); }
__device__ __forceinline__ float op_fma(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double op_fma(double a, double b, double c) { return fma(a, b, c); }
template <typename T>
__device__ __forceinline__ T op_fma(T a, T b, T c) { return T(a * b + c); }
__device__ __forceinline__ float op_pow(float a, float b) { return powf(a, b); }
__device__ __forceinline__ double op_pow(double a, double b) { return pow(a, b); }
__device__ __forceinline__ float op_fmod(float a, float b) { return fmodf(a, b); }
__device__ __forceinline__ double op_fmod(double a, double b) { return fmod(a, b); }
__device__ __forceinline__ float op_mod(float a, float b) {
  const float r = fmodf(a, b);
  if (r == 0) return b < 0 ? -0.0f : 0.0f;
  return (r < 0) != (b < 0) ? r + b : r;
}
__device__ __forceinline__ double op_mod(double a, double b) {
  const double r = fmod(a, b);
  if (r == 0) return b < 0 ? -0.0 : 0.0;
  return (r < 0) != (b < 0) ? r + b : r;
}

// Whole numbers: by zero gives 0, the least by -1 wraps.
template <typename T>
__device__ __forceinline__ bool is_minus_one(T b) { return T(-1) < T(0) && b == T(-1); }
template <typename T>
__device__ __forceinline__ T divide_whole(T a, T b) { return b == 0 ? T(0) : is_minus_one(b) ? T(0 - u64(a)) : T(a / b); }
template <typename T>
__device__ __forceinline__ T op_fmod(T a, T b) { return b == 0 || is_minus_one(b) ? T(0) : T(a % b); }
template <typename T>
__device__ __forceinline__ T op_mod(T a, T b) {
  const T r = op_fmod(a, b);
  return r != 0 && ((r < 0) != (b < 0)) ? T(r + b) : r;
}
template <typename T>
__device__ __forceinline__ T op_pow(T a, T b) {
  if (b < T(0)) return a == T(1) ? T(1) : is_minus_one(a) ? T(b % 2 ? -1 : 1) : T(0);
  u64 result = 1, base = u64(a);
  for (u64 e = u64(b); e; e >>= 1, base *= base)
    if (e & 1) result *= base;
  return T(result);
}
template <typename T>
__device__ __forceinline__ T op_abs(T a) { return a < T(0) ? T(0 - u64(a)) : a; }
template <typename T>
__device__ __forceinline__ T op_sign(T a) { return T((a > T(0)) - (a < T(0))); }
template <typename T>
__device__ __forceinline__ T op_reciprocal(T a) { return a == 0 ? T(0) : T(T(1) / a); }
template <typename T>
__device__ __forceinline__ T op_relu(T a) { return a < T(0) ? T(0) : a; }
template <typename T>
__device__ __forceinline__ T op_floor(T a) { return a; }
template <typename T>
__device__ __forceinline__ T op_ceil(T a) { return a; }
template <typename T>
__device__ __forceinline__ T op_round(T a) { return a; }
template <typename T>
__device__ __forceinline__ T op_shl(T a, T b) { return u64(b) >= 64 ? T(0) : T(u64(a) << u64(b)); }
template <typename T>
__device__ __forceinline__ T op_shr(T a, T b) {
  if (T(-1) < T(0)) return T(i64(a) >> (u64(b) < 63 ? u64(b) : 63));
  return u64(b) >= 64 ? T(0) : T(u64(a) >> u64(b));
}

// Two neighbours by one load; the address is a multiple of both.
__device__ __forceinline__ void load_pair(const float* p, float& a, float& b) {
  const float2 v = *reinterpret_cast<const float2*>(p);
  a = v.x, b = v.y;
}
__device__ __forceinline__ void load_pair(const bf16* p, float& a, float& b) {
  const u32 v = *reinterpret_cast<const u32*>(p);
  a = __uint_as_float(v << 16), b = __uint_as_float(v & 0xffff0000u);
}
__device__ __forceinline__ void load_pair(const f16* p, float& a, float& b) {
  const u32 v = *reinterpret_cast<const u32*>(p);
  a = load_value(f16{u16(v)}), b = load_value(f16{u16(v >> 16)});
}

// COUNT neighbouring elements as whole words of up to 16 bytes; `aligned` is the same for all threads of a launch.
template <int BYTES>
struct Word;
template <> struct Word<1> { using Type = unsigned char; };
template <> struct Word<2> { using Type = u16; };
template <> struct Word<4> { using Type = u32; };
template <> struct Word<8> { using Type = uint2; };
template <> struct Word<16> { using Type = uint4; };

template <typename T, int COUNT>
struct alignas(sizeof(T) * COUNT < 16 ? sizeof(T) * COUNT : 16) Pack {
  T at[COUNT];
};
template <typename T, int COUNT>
__device__ __forceinline__ void load_pack(const T* p, bool aligned, Pack<T, COUNT>& to) {
  constexpr int kBytes = sizeof(T) * COUNT, kWord = kBytes < 16 ? kBytes : 16;
  using W = typename Word<kWord>::Type;
  if (aligned) {
#pragma unroll
    for (int i = 0; i < kBytes / kWord; ++i)
      reinterpret_cast<W*>(&to)[i] = reinterpret_cast<const W*>(p)[i];
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) to.at[i] = p[i];
  }
}
template <typename T, int COUNT>
__device__ __forceinline__ void store_pack(T* p, bool aligned, const Pack<T, COUNT>& from) {
  constexpr int kBytes = sizeof(T) * COUNT, kWord = kBytes < 16 ? kBytes : 16;
  using W = typename Word<kWord>::Type;
  if (aligned) {
#pragma unroll
    for (int i = 0; i < kBytes / kWord; ++i) reinterpret_cast<W*>(p)[i] = reinterpret_cast<const W*>(&from)[i];
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) p[i] = from.at[i];
  }
}

// Programmatic dependent launch (LaunchOptions::dependent): a kernel that was launched so reads nothing of its predecessor
// and writes nothing before the wait; what it does before (weights, indices) overlaps the predecessor's end. Without such a
// launch both do nothing.
__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void release_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
