// CUDA C++ as plain C++: what the kernels use of the language, for one thread at a time (emulated.cpp switches).
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime.h"

extern "C" {
EmulatedRuntime* emulated_runtime = nullptr;
EmulatedIndex threadIdx, blockIdx, blockDim, gridDim;
alignas(1024) unsigned char emulated_shared[256 << 10];
}

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#define __constant__ static const
#define __restrict__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) alignas(n)

struct alignas(4) uchar4 {
  unsigned char x, y, z, w;
};
struct alignas(4) ushort2 {
  unsigned short x, y;
};
struct alignas(8) ushort4 {
  unsigned short x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(16) double2 {
  double x, y;
};
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }

inline void __syncthreads() { emulated_runtime->block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffu) { emulated_runtime->warp_exchange(mask, 0); }
inline void __threadfence() {}
inline void __threadfence_block() {}
inline unsigned emulated_lane() { return threadIdx.x & 31u; }

template <typename T>
inline T emulated_read(unsigned mask, T value, unsigned lane) {
  static_assert(sizeof(T) <= 8);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  const uint64_t* all = emulated_runtime->warp_exchange(mask, bits);
  std::memcpy(&value, &all[lane & 31u], sizeof(T));
  return value;
}
template <typename T>
inline T __shfl_xor_sync(unsigned mask, T value, int with, int = 32) {
  return emulated_read(mask, value, emulated_lane() ^ unsigned(with));
}
template <typename T>
inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  return emulated_read(mask, value, (emulated_lane() & ~unsigned(width - 1)) | (unsigned(lane) & unsigned(width - 1)));
}
template <typename T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const unsigned lane = emulated_lane(), in = lane & unsigned(width - 1);
  return emulated_read(mask, value, in + by < unsigned(width) ? lane + by : lane);
}
template <typename T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const unsigned lane = emulated_lane(), in = lane & unsigned(width - 1);
  return emulated_read(mask, value, in >= by ? lane - by : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  const uint64_t* all = emulated_runtime->warp_exchange(mask, predicate != 0);
  unsigned bits = 0;
  for (unsigned i = 0; i < 32; ++i)
    if ((mask >> i & 1) && all[i]) bits |= 1u << i;
  return bits;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == mask; }

template <typename T, typename V>
inline T atomicAdd(T* at, V value) {
  const T old = *at;
  *at = T(old + T(value));
  return old;
}
template <typename T, typename V>
inline T atomicMax(T* at, V value) {
  const T old = *at;
  if (T(value) > old) *at = T(value);
  return old;
}
template <typename T>
inline T __ldg(const T* p) {
  return *p;
}
template <typename T>
inline T __ldcs(const T* p) {
  return *p;
}
template <typename T>
inline T __ldcg(const T* p) {
  return *p;
}
template <typename T>
inline void __stcs(T* p, T v) {
  *p = v;
}
template <typename T>
inline void __stcg(T* p, T v) {
  *p = v;
}

inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
// Out of range saturates and NaN is 0, as cvt.rzi does (float2ll of NaN is the least number).
inline long long __double2ll_rz(double x) {
  if (x != x) return INT64_MIN;
  return x >= 0x1p63 ? INT64_MAX : x <= -0x1p63 ? INT64_MIN : (long long)x;
}
inline unsigned long long __double2ull_rz(double x) {
  if (x != x) return 1ull << 63;
  return x >= 0x1p64 ? UINT64_MAX : x <= 0 ? 0 : (unsigned long long)x;
}
inline long long __float2ll_rz(float x) { return __double2ll_rz(x); }
inline unsigned long long __float2ull_rz(float x) { return __double2ull_rz(x); }
inline int __float2int_rn(float x) {
  return x != x ? 0 : int(std::fmin(std::fmax(std::nearbyint(double(x)), -0x1p31), 0x1p31 - 1));
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select) {
  const uint64_t both = uint64_t(b) << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) r |= unsigned(both >> ((select >> (4 * i) & 7) * 8) & 0xff) << (8 * i);
  return r;
}
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline int __ffs(int x) { return x ? std::countr_zero(unsigned(x)) + 1 : 0; }
inline float rsqrtf(float x) { return float(1 / std::sqrt(double(x))); }
inline double rsqrt(double x) { return 1 / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __frcp_rn(float x) { return 1 / x; }
inline float exp2f_approx(float x) { return float(std::exp2(double(x))); }
inline float emulated_nan_max(float a, float b) { return a != a ? a : b != b ? b : a > b ? a : b; }
inline float emulated_nan_min(float a, float b) { return a != a ? a : b != b ? b : a < b ? a : b; }
using std::fma;
template <typename T>
inline T min(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
inline T max(T a, T b) {
  return a < b ? b : a;
}

// Of the prelude's conversions, which are instructions of PTX there.
inline float emulated_from_f16(unsigned short h) {
  const unsigned sign = unsigned(h & 0x8000u) << 16, e = h >> 10 & 31u, m = h & 1023u;
  if (e == 31) return std::bit_cast<float>(sign | 0x7f800000u | m << 13);
  if (e == 0) return std::copysign(float(m) * 0x1p-24f, std::bit_cast<float>(sign | 0x3f800000u));
  return std::bit_cast<float>(sign | (e + 112) << 23 | m << 13);
}
inline unsigned short emulated_to_f16(float f) {
  const unsigned x = std::bit_cast<unsigned>(f), sign = x >> 16 & 0x8000u, a = x & 0x7fffffffu;
  if (a > 0x7f800000u) return (unsigned short)(sign | 0x7e00u);
  if (a >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
  if (a < 0x33000001u) return (unsigned short)sign;
  if (a < 0x38800000u)
    return (unsigned short)(sign | unsigned(std::nearbyint(double(std::bit_cast<float>(a)) * 0x1p24)));
  const unsigned r = a + 0xfffu + (a >> 13 & 1);
  return (unsigned short)(sign | (r - 0x38000000u) >> 13);
}
inline unsigned short emulated_to_bf16(float f) {
  const unsigned x = std::bit_cast<unsigned>(f);
  if ((x & 0x7fffffffu) > 0x7f800000u) return 0x7fff;
  return (unsigned short)((x + 0x7fffu + (x >> 16 & 1)) >> 16);
}

// A launch by addresses of parameters.
template <typename... P>
inline void emulated_call(void (*kernel)(P...), void** at) {
  [&]<size_t... I>(std::index_sequence<I...>) { kernel(*static_cast<std::remove_cvref_t<P>*>(at[I])...); }
  (std::index_sequence_for<P...>());
}
template <typename... P>
inline size_t emulated_parameter(void (*)(P...), size_t i) {
  const size_t sizes[] = {sizeof(std::remove_cvref_t<P>)..., 0};
  return i < sizeof...(P) ? sizes[i] : 0;
}
