#include "kernels/cpu/attention/attention_rows_steps.h"

#include <cstring>

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/attention_rows_steps.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/masked_inl.h"

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

constexpr int kKeys = 4;    // that a tile of scores has
constexpr int kValues = 8;  // rows of v that are added at a time
// Queries of a tile. AVX-512: 16 sums, 4 keys, 1 query of 32 registers; AVX2: 8, 4, 1 of 16.
#if HWY_TARGET == HWY_AVX3
constexpr int kRows = 4;
#else
constexpr int kRows = 2;
#endif

template <DType kType>
struct Cache;

template <>
struct Cache<DType::kF32> {
  using T = float;
  static HWY_INLINE V Load(const T* p) { return hn::LoadU(D(), p); }
};
template <>
struct Cache<DType::kBF16> {
  using T = uint16_t;
  static HWY_INLINE V Load(const T* p) {
    const hn::RebindToUnsigned<D> d32;
    const hn::Rebind<uint16_t, D> d16;
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, p))));
  }
};
template <>
struct Cache<DType::kF16> {
  using T = uint16_t;
  static HWY_INLINE V Load(const T* p) {
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(D(), f16_to_f32(*p));
#else
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(D(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(p)));
#endif
  }
};

// The first n < lanes elements, zeros after them; nothing else is touched.
template <DType kType>
HWY_INLINE V LoadFirst(const typename Cache<kType>::T* p, size_t n) {
  typename Cache<kType>::T whole[hn::MaxLanes(D())] = {};
  std::memcpy(whole, p, n * sizeof(whole[0]));
  return Cache<kType>::Load(whole);
}

// What will be read 2 KB later is fetched along with each load. Read bandwidth from memory at 4 queries a key, f32 and
// f16: 16.6 and 17.5 GB/s by 2 KB ahead, 16.0 and 16.7 by 1, 14.8 and 15.9 by 4. Whole rows fetched before each group
// of keys, 1 KB ahead: 16.6 and 14.6; none: 12.8 and 12.1. Keys and values in two blocks one after the
// other: 14.0, 13.1. Later, f32, in one run each: both 4 KB ahead 12.3 for 14.9, a second request into L2 8 to 64 KB
// ahead (what sums of rows gain by) 11.7 to 12.8 for 13.7, lines asked for in their order 14.5 for 14.4, keys and
// values walked in it 12.9 to 13.6 for 14.5, keys 1 KB ahead 9.25 ms for 9.18.
constexpr int64_t kAhead = 2048;

// That in whole rows.
template <DType kType>
int64_t RowsAhead(const CacheRows& c) {
  const int64_t bytes = c.depth * int64_t(sizeof(typename Cache<kType>::T));
  return bytes > 0 ? (kAhead + bytes - 1) / bytes : 0;
}

// From row t on, in elements; 0 where there are no more rows.
HWY_INLINE int64_t AheadOf(const CacheRows& c, int64_t distance, int64_t t, int64_t rows) {
  return t + distance + rows <= c.ahead ? distance * c.row : 0;
}

// The sums of four vectors, to four floats.
HWY_INLINE void StoreSums(const V* v, float* to) {
  const D d;
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
  const hn::RepartitionToWide<D> d2;
  // In each block of 128 bits: a0+a2 b0+b2 a1+a3 b1+b3, the same of c and e, then a b c e.
  const V ab = hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
  const V ce = hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
  const V all = hn::Add(hn::BitCast(d, hn::InterleaveLower(d2, hn::BitCast(d2, ab), hn::BitCast(d2, ce))),
                        hn::BitCast(d, hn::InterleaveUpper(d2, hn::BitCast(d2, ab), hn::BitCast(d2, ce))));
  const hn::Half<D> dh;
  const auto half = hn::Add(hn::LowerHalf(dh, all), hn::UpperHalf(dh, all));
#if HWY_TARGET == HWY_AVX3
  const hn::Half<decltype(dh)> d4;
  hn::StoreU(hn::Add(hn::LowerHalf(d4, half), hn::UpperHalf(d4, half)), d4, to);
#else
  hn::StoreU(half, dh, to);
#endif
#else
  for (int i = 0; i < kKeys; ++i) to[i] = hn::GetLane(hn::SumOfLanes(d, v[i]));
#endif
}

template <DType kType, int R>
HWY_INLINE void ScoreTile(const typename Cache<kType>::T* const* k, int64_t depth, int64_t ahead, const float* q,
                          int64_t q_row, float* scores, int64_t score_row) {
  const D d;
  constexpr int64_t N = int64_t(hn::MaxLanes(d));
  V sum[R][kKeys];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kKeys; ++c) sum[r][c] = hn::Zero(d);
  }
  const int64_t whole = depth / N * N;
  int64_t j = 0;
  for (; j < whole; j += N) {
    V key[kKeys];
#pragma GCC unroll 4
    for (int c = 0; c < kKeys; ++c) {
      key[c] = Cache<kType>::Load(k[c] + j);
      if (ahead) hwy::Prefetch(k[c] + j + ahead);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const V x = hn::LoadU(d, q + r * q_row + j);
#pragma GCC unroll 4
      for (int c = 0; c < kKeys; ++c) sum[r][c] = hn::MulAdd(x, key[c], sum[r][c]);
    }
  }
  if (j < depth) {
    V key[kKeys];
#pragma GCC unroll 4
    for (int c = 0; c < kKeys; ++c) key[c] = LoadFirst<kType>(k[c] + j, size_t(depth - j));
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const V x = hn::LoadU(d, q + r * q_row + j);
#pragma GCC unroll 4
      for (int c = 0; c < kKeys; ++c) sum[r][c] = hn::MulAdd(x, key[c], sum[r][c]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) StoreSums(sum[r], scores + r * score_row);
}

// Scores of up to kKeys keys from the t-th on.
template <DType kType>
HWY_INLINE void Dots(const CacheRows& k, int64_t distance, int64_t t, const float* q, int64_t q_row, int64_t rows,
                     float* scores, int64_t score_row) {
  using T = typename Cache<kType>::T;
  const T* data = static_cast<const T*>(k.data);
  const T* key[kKeys];
  for (int c = 0; c < kKeys; ++c) key[c] = data + (t + c < k.count ? t + c : k.count - 1) * k.row;
  int64_t r = 0, ahead = AheadOf(k, distance, t, kKeys);  // by the first tile alone
  for (; r + kRows <= rows; r += kRows, ahead = 0)
    ScoreTile<kType, kRows>(key, k.depth, ahead, q + r * q_row, q_row, scores + r * score_row + t, score_row);
  for (; r < rows; ++r, ahead = 0)
    ScoreTile<kType, 1>(key, k.depth, ahead, q + r * q_row, q_row, scores + r * score_row + t, score_row);
}

// y[r] += the weighted rows of v, over NB vectors of columns (the last one of `last` columns, if not 0).
template <DType kType, int R, int NB>
HWY_INLINE void ValueTile(const typename Cache<kType>::T* v, int64_t v_row, int64_t count, int64_t ahead, size_t last,
                          const float* weights, int64_t weight_row, float* y, int64_t y_row) {
  const D d;
  constexpr int64_t N = int64_t(hn::MaxLanes(d));
  V sum[R][NB];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < NB; ++j) sum[r][j] = hn::LoadU(d, y + r * y_row + j * N);
  }
  for (int64_t t = 0; t < count; ++t, v += v_row, ++weights) {
    V value[NB];
#pragma GCC unroll 4
    for (int j = 0; j < NB; ++j) {
      value[j] = NB == 1 && last ? LoadFirst<kType>(v, last) : Cache<kType>::Load(v + j * N);
      if (ahead) hwy::Prefetch(v + j * N + ahead);
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const V w = hn::Set(d, weights[r * weight_row]);
#pragma GCC unroll 4
      for (int j = 0; j < NB; ++j) sum[r][j] = hn::MulAdd(w, value[j], sum[r][j]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int j = 0; j < NB; ++j) hn::StoreU(sum[r][j], d, y + r * y_row + j * N);
  }
}

template <DType kType, int R>
HWY_INLINE void ValueRows(const typename Cache<kType>::T* v, int64_t v_row, int64_t depth, int64_t count, int64_t ahead,
                          const float* weights, int64_t weight_row, float* y, int64_t y_row) {
  constexpr int64_t N = int64_t(hn::MaxLanes(D()));
  int64_t j = 0;
  for (; j + 4 * N <= depth; j += 4 * N)
    ValueTile<kType, R, 4>(v + j, v_row, count, ahead, 0, weights, weight_row, y + j, y_row);
  for (; j < depth; j += N)
    ValueTile<kType, R, 1>(v + j, v_row, count, ahead, j + N <= depth ? 0 : size_t(depth - j), weights, weight_row,
                           y + j, y_row);
}

// Adds up to kValues rows of v from the t-th on. (Eight rows of one vector in registers and the sums in memory: 10 %
// slower in cache at 4 queries.)
template <DType kType>
HWY_INLINE void Values(const CacheRows& v, int64_t distance, int64_t t, const float* weights, int64_t weight_row,
                       int64_t rows, float* y, int64_t y_row) {
  using T = typename Cache<kType>::T;
  const T* data = static_cast<const T*>(v.data) + t * v.row;
  const int64_t count = v.count - t < kValues ? v.count - t : kValues;
  int64_t r = 0, ahead = AheadOf(v, distance, t, kValues);
  for (; r + kRows <= rows; r += kRows, ahead = 0)
    ValueRows<kType, kRows>(data, v.row, v.depth, count, ahead, weights + r * weight_row + t, weight_row, y + r * y_row,
                            y_row);
  for (; r < rows; ++r, ahead = 0)
    ValueRows<kType, 1>(data, v.row, v.depth, count, ahead, weights + r * weight_row + t, weight_row, y + r * y_row,
                        y_row);
}

template <DType kK, DType kV>
void Block(const CacheRows& k, const float* q, int64_t q_row, float* scores, const CacheRows& v, const float* weights,
           float* y, int64_t y_row, int64_t rows, int64_t score_row) {
  static_assert(kValues % kKeys == 0);
  const int64_t k_ahead = RowsAhead<kK>(k), v_ahead = RowsAhead<kV>(v);
  for (int64_t t = 0; t < k.count || t < v.count; t += kValues) {
    for (int64_t u = t; u < t + kValues && u < k.count; u += kKeys)
      Dots<kK>(k, k_ahead, u, q, q_row, rows, scores, score_row);
    if (t < v.count) Values<kV>(v, v_ahead, t, weights, score_row, rows, y, y_row);
  }
}

template <DType kK>
auto BlockOf(DType v) {
  return v == DType::kF32   ? Block<kK, DType::kF32>
         : v == DType::kF16 ? Block<kK, DType::kF16>
                            : Block<kK, DType::kBF16>;
}

void block(const CacheRows& k, const float* q, int64_t q_row, float* scores, const CacheRows& v, const float* weights,
           float* y, int64_t y_row, int64_t rows, int64_t score_row) {
  const auto run = k.type == DType::kF32   ? BlockOf<DType::kF32>(v.type)
                   : k.type == DType::kF16 ? BlockOf<DType::kF16>(v.type)
                                           : BlockOf<DType::kBF16>(v.type);
  run(k, q, q_row, scores, v, weights, y, y_row, rows, score_row);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {

HWY_EXPORT(block);

void attend_block(const CacheRows& k, const float* q, int64_t q_row, float* scores, const CacheRows& v,
                  const float* weights, float* y, int64_t y_row, int64_t rows, int64_t score_row) {
  HWY_DYNAMIC_DISPATCH(block)(k, q, q_row, scores, v, weights, y, y_row, rows, score_row);
}

}  // namespace ridgeline::cpu
#endif
