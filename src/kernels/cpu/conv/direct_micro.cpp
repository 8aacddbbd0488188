#include "kernels/cpu/conv/direct_micro.h"

#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/conv/direct_micro.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/conv/vector_inl.h"

#include <array>
#include <limits>
#include <utility>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {

// 32 registers hold 14 x 2 sums, 2 weights and a pixel; 16 hold 6 x 2.
constexpr int kMaxTile = kLanes == 16 ? 14 : 6;

/// Stride arithmetic that the compiler must not turn into one pointer for each pixel: there are 16 general registers.
template <int t>
HWY_INLINE float At(const char* p, int64_t s1, int64_t s3, int64_t s5) {
  const char* at;
  if constexpr (t == 0)
    at = p;
  else if constexpr (t == 1)
    at = p + s1;
  else if constexpr (t == 2)
    at = p + s1 * 2;
  else if constexpr (t == 3)
    at = p + s3;
  else if constexpr (t == 4)
    at = p + s1 * 4;
  else if constexpr (t == 5)
    at = p + s5;
  else
    at = p + s3 * 2;
  return *reinterpret_cast<const float*>(at);
}

// The sums are addressed by constants alone, even in loops: else g++ keeps them in memory.
template <int t, int T, int N>
HWY_INLINE void Pixel(V (&sum)[T][N], const V (&weight)[N], const char* p, const char* q, int64_t s1, int64_t s3,
                      int64_t s5) {
  constexpr int kHalf = (T + 1) / 2;
  V x;
  if constexpr (t < kHalf)
    x = hn::Set(d, At<t>(p, s1, s3, s5));
  else
    x = hn::Set(d, At<t - kHalf>(q, s1, s3, s5));
  Accumulate(sum[t][0], x, weight[0]);
  if constexpr (N == 2) Accumulate(sum[t][1], x, weight[1]);
}

template <int T, int N, int... t>
HWY_INLINE void Step(V (&sum)[T][N], const char* p, const char* q, int64_t s1, int64_t s3, int64_t s5, const float* w,
                     std::integer_sequence<int, t...>) {
  V weight[N];
  weight[0] = hn::LoadU(d, w);
  if constexpr (N == 2) weight[1] = hn::LoadU(d, w + kLanes);
  (Pixel<t>(sum, weight, p, q, s1, s3, s5), ...);
}

struct Finish {
  V low, high;
  int64_t columns;
};

template <int t, int kHalf, bool kClamp>
HWY_INLINE void Store(const DirectTile& g, V v, const Finish& f, int64_t column) {
  constexpr int64_t kStep = t < kHalf ? t : t - kHalf;
  float* y = (t < kHalf ? g.y : g.y_high) + kStep * g.y_step + column;
  if (g.residual)
    v = hn::Add(v, LoadFirst((t < kHalf ? g.residual : g.residual_high) + kStep * g.residual_step + column, f.columns));
  if constexpr (kClamp) v = Clamp(v, f.low, f.high);
  StoreFirst(v, y, f.columns);
}

template <int n, int T, int N, int... t>
HWY_INLINE void StoreColumn(const DirectTile& g, V (&sum)[T][N], std::integer_sequence<int, t...>) {
  Finish f;
  f.columns = g.cols - n * kLanes;
  if (f.columns <= 0) return;
  f.low = hn::Set(d, g.low), f.high = hn::Set(d, g.high);
  const float infinity = std::numeric_limits<float>::infinity();
  if (g.low == -infinity && g.high == infinity)
    (Store<t, (T + 1) / 2, false>(g, sum[t][n], f, n * kLanes), ...);
  else
    (Store<t, (T + 1) / 2, true>(g, sum[t][n], f, n * kLanes), ...);
}

/// The sums start at the bias.
template <int n, int T, int N, int... t>
HWY_INLINE void Start(const DirectTile& g, V (&sum)[T][N], std::integer_sequence<int, t...>) {
  if (g.row_bias) {
    ((sum[t][n] = hn::Set(d, g.row_bias[t])), ...);
  } else {
    const int64_t left = g.cols - n * kLanes;
    const V bias = g.bias && left > 0 ? LoadFirst(g.bias + n * kLanes, left) : hn::Zero(d);
    ((sum[t][n] = bias), ...);
  }
}

/// Begins to bring in what the end of the tile adds (5 to 8 % of a 1x1 convolution of 64 channels; for the lines that
/// it writes this did nothing).
template <int N, int... t>
HWY_INLINE void FetchResidual(const DirectTile& g, std::integer_sequence<int, t...>) {
  constexpr int kHalf = (int(sizeof...(t)) + 1) / 2;
  const auto fetch = [&](int i) {
    const float* at = (i < kHalf ? g.residual : g.residual_high) + (i < kHalf ? i : i - kHalf) * g.residual_step;
    __builtin_prefetch(at, 0, 3);
    if constexpr (N == 2) __builtin_prefetch(at + kLanes, 0, 3);
  };
  (fetch(t), ...);
}

template <int T, int N>
void Micro(const DirectTile& g) {
  constexpr auto kPixels = std::make_integer_sequence<int, T>{};
  V sum[T][N];
  Start<0>(g, sum, kPixels);
  if constexpr (N == 2) Start<1>(g, sum, kPixels);
  int64_t s1 = g.a_step * 4, s3 = s1 * 3, s5 = s1 * 5;
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
  asm("" : "+r"(s1), "+r"(s3), "+r"(s5));
#endif
  if (g.residual) FetchResidual<N>(g, kPixels);
  const float* w = g.w;
  const char* prefetch = g.prefetch;
  const int64_t ahead = g.prefetch_step;
  for (int64_t i = 0; i < g.outer; ++i) {
    for (int64_t j = 0; j < g.inner; ++j) {
      const char* p = reinterpret_cast<const char*>(g.a + i * g.outer_step + j * g.inner_step);
      const char* q = reinterpret_cast<const char*>(g.a_high + i * g.outer_step + j * g.inner_step);
      int64_t r = g.run;
      for (; r >= 4; r -= 4) {
        if (ahead) {
          for (int u = 0; u < 4; ++u) __builtin_prefetch(prefetch + u * ahead, 0, 2);
          prefetch += 4 * ahead;
        }
        Step(sum, p, q, s1, s3, s5, w, kPixels);
        Step(sum, p + 4, q + 4, s1, s3, s5, w + N * kLanes, kPixels);
        Step(sum, p + 8, q + 8, s1, s3, s5, w + 2 * N * kLanes, kPixels);
        Step(sum, p + 12, q + 12, s1, s3, s5, w + 3 * N * kLanes, kPixels);
        p += 16, q += 16, w += 4 * N * kLanes;
      }
      for (; r > 0; --r) {
        Step(sum, p, q, s1, s3, s5, w, kPixels);
        p += 4, q += 4, w += N * kLanes;
      }
    }
  }
  StoreColumn<0>(g, sum, kPixels);
  if constexpr (N == 2) StoreColumn<1>(g, sum, kPixels);
}

template <int N, int... t>
constexpr std::array<DirectMicro, sizeof...(t) + 1> Table(std::integer_sequence<int, t...>) {
  return {nullptr, &Micro<t + 1, N>...};
}
constexpr auto kOne = Table<1>(std::make_integer_sequence<int, kMaxTile>{});
constexpr auto kTwo = Table<2>(std::make_integer_sequence<int, kMaxTile>{});

DirectKernels Kernels() { return {kLanes, kMaxTile, kOne.data(), kTwo.data()}; }

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(Kernels);
}
DirectKernels direct_kernels() { return HWY_DYNAMIC_DISPATCH(Kernels)(); }
}  // namespace ridgeline::cpu
#endif
