#include "kernels/cpu/movement/copy_tile.h"

#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/movement/copy_tile.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::cpu {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// ---- rows that are contiguous on both sides

/// n bytes, with stores past the caches for all whole lines.
void stream_row(const uint8_t* src, uint8_t* dst, int64_t n) {
  const hn::ScalableTag<uint8_t> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  int64_t head = int64_t(-reinterpret_cast<intptr_t>(dst) & 63);
  if (head > n) head = n;
  std::memcpy(dst, src, size_t(head));
  int64_t i = head;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::LoadU(d, src + i), b = hn::LoadU(d, src + i + lanes);
    hn::Stream(a, d, dst + i);
    hn::Stream(b, d, dst + i + lanes);
  }
  std::memcpy(dst + i, src + i, size_t(n - i));
}

/// A short row without the call of memcpy: whole vectors, the last one overlapping its neighbour.
HWY_INLINE void short_row(const uint8_t* src, uint8_t* dst, int64_t n) {
  const hn::ScalableTag<uint8_t> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  if (n < lanes || HWY_TARGET == HWY_SCALAR) {
    std::memcpy(dst, src, size_t(n));
    return;
  }
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::LoadU(d, src + i), d, dst + i);
  if (i < n) hn::StoreU(hn::LoadU(d, src + n - lanes), d, dst + n - lanes);
}

void copy_rows(const uint8_t* src, int64_t src_row, uint8_t* dst, int64_t dst_row, int64_t rows, int64_t n,
               bool stream) {
  for (int64_t i = 0; i < rows; ++i) {
    if (stream && n >= 256)
      stream_row(src + i * src_row, dst + i * dst_row, n);
    else if (n <= 512)
      short_row(src + i * src_row, dst + i * dst_row, n);
    else
      std::memcpy(dst + i * dst_row, src + i * src_row, size_t(n));
  }
}

// ---- transposes of 4-byte elements

#if HWY_TARGET <= HWY_AVX3 && HWY_ARCH_X86
constexpr int kSide = 16;
/// Columns j of src (16 elements of the rows each, contiguous) become rows of dst. Four stages of shuffles: pairs,
/// fours within 128 bits, then the 128-bit lanes.
template <bool kStream>
HWY_INLINE void transpose_block(const float* src, int64_t src_col, float* dst, int64_t dst_row) {
  __m512 r[16], t[16];
  for (int j = 0; j < 16; ++j) r[j] = _mm512_loadu_ps(src + j * src_col);
  for (int j = 0; j < 8; ++j) {
    t[2 * j] = _mm512_unpacklo_ps(r[2 * j], r[2 * j + 1]);
    t[2 * j + 1] = _mm512_unpackhi_ps(r[2 * j], r[2 * j + 1]);
  }
  for (int j = 0; j < 4; ++j) {
    const __m512d a = _mm512_castps_pd(t[4 * j]), b = _mm512_castps_pd(t[4 * j + 1]);
    const __m512d c = _mm512_castps_pd(t[4 * j + 2]), e = _mm512_castps_pd(t[4 * j + 3]);
    r[4 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, c));
    r[4 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, c));
    r[4 * j + 2] = _mm512_castpd_ps(_mm512_unpacklo_pd(b, e));
    r[4 * j + 3] = _mm512_castpd_ps(_mm512_unpackhi_pd(b, e));
  }
  // r[4g + k] has in lane L the elements (row 4L + k; columns 4g to 4g + 3).
  for (int k = 0; k < 4; ++k) {
    const __m512 lo02 = _mm512_shuffle_f32x4(r[k], r[4 + k], 0x88),
                 hi02 = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0x88);
    const __m512 lo13 = _mm512_shuffle_f32x4(r[k], r[4 + k], 0xdd),
                 hi13 = _mm512_shuffle_f32x4(r[8 + k], r[12 + k], 0xdd);
    t[k] = _mm512_shuffle_f32x4(lo02, hi02, 0x88);
    t[8 + k] = _mm512_shuffle_f32x4(lo02, hi02, 0xdd);
    t[4 + k] = _mm512_shuffle_f32x4(lo13, hi13, 0x88);
    t[12 + k] = _mm512_shuffle_f32x4(lo13, hi13, 0xdd);
  }
  for (int i = 0; i < 16; ++i) {
    if (kStream)
      _mm512_stream_ps(dst + i * dst_row, t[i]);
    else
      _mm512_storeu_ps(dst + i * dst_row, t[i]);
  }
}
#elif HWY_TARGET == HWY_AVX2
constexpr int kSide = 8;
template <bool kStream>
HWY_INLINE void transpose_block(const float* src, int64_t src_col, float* dst, int64_t dst_row) {
  __m256 r[8], t[8];
  for (int j = 0; j < 8; ++j) r[j] = _mm256_loadu_ps(src + j * src_col);
  for (int j = 0; j < 4; ++j) {
    t[2 * j] = _mm256_unpacklo_ps(r[2 * j], r[2 * j + 1]);
    t[2 * j + 1] = _mm256_unpackhi_ps(r[2 * j], r[2 * j + 1]);
  }
  for (int j = 0; j < 2; ++j) {
    const __m256d a = _mm256_castps_pd(t[4 * j]), b = _mm256_castps_pd(t[4 * j + 1]);
    const __m256d c = _mm256_castps_pd(t[4 * j + 2]), e = _mm256_castps_pd(t[4 * j + 3]);
    r[4 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, c));
    r[4 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, c));
    r[4 * j + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(b, e));
    r[4 * j + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(b, e));
  }
  for (int k = 0; k < 4; ++k) {
    t[k] = _mm256_permute2f128_ps(r[k], r[4 + k], 0x20);
    t[4 + k] = _mm256_permute2f128_ps(r[k], r[4 + k], 0x31);
  }
  for (int i = 0; i < 8; ++i) {
    if (kStream)
      _mm256_stream_ps(dst + i * dst_row, t[i]);
    else
      _mm256_storeu_ps(dst + i * dst_row, t[i]);
  }
}
#else
constexpr int kSide = 8;
template <bool kStream>
HWY_INLINE void transpose_block(const float* src, int64_t src_col, float* dst, int64_t dst_row) {
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 8; ++j) std::memcpy(dst + i * dst_row + j, src + j * src_col + i, 4);
}
#endif

template <typename T>
void copy_strided(const T* src, int64_t src_row, int64_t src_col, T* dst, int64_t dst_row, int64_t dst_col,
                  int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j) dst[i * dst_row + j * dst_col] = src[i * src_row + j * src_col];
}

/// Blocks of side x side elements, so that the lines of both sides are used while they are in L1.
template <typename T>
void transpose_generic(const T* src, int64_t src_col, T* dst, int64_t dst_row, int64_t rows, int64_t cols) {
  constexpr int64_t kBlock = 128 / int64_t(sizeof(T));
  for (int64_t i0 = 0; i0 < rows; i0 += kBlock) {
    const int64_t i1 = i0 + kBlock < rows ? i0 + kBlock : rows;
    for (int64_t j0 = 0; j0 < cols; j0 += kBlock) {
      const int64_t j1 = j0 + kBlock < cols ? j0 + kBlock : cols;
      for (int64_t i = i0; i < i1; ++i)
        for (int64_t j = j0; j < j1; ++j) dst[i * dst_row + j] = src[i + j * src_col];
    }
  }
}

/// Few columns (an image of three channels to channels last): each column is read along, and what goes to neighbouring
/// places is woven in registers (3 x 640 x 640 of 16 bits one by one: 0.6 ms).
template <int kCols, typename T>
void transpose_narrow(const T* src, int64_t src_col, T* dst, int64_t dst_row, int64_t rows) {
  int64_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<T> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  if (kCols > 1 && sizeof(T) < 8 && dst_row == kCols) {
    for (; i + lanes <= rows; i += lanes) {
      const auto a = hn::LoadU(d, src + i), b = hn::LoadU(d, src + i + (kCols > 1 ? src_col : 0)),
                 c = hn::LoadU(d, src + i + (kCols > 2 ? 2 * src_col : 0)),
                 e = hn::LoadU(d, src + i + (kCols > 3 ? 3 * src_col : 0));
      T* to = dst + i * kCols;
      if constexpr (kCols == 2) hn::StoreInterleaved2(a, b, d, to);
      if constexpr (kCols == 3) hn::StoreInterleaved3(a, b, c, d, to);
      if constexpr (kCols == 4) hn::StoreInterleaved4(a, b, c, e, d, to);
    }
  }
#endif
  for (; i < rows; ++i)
    for (int j = 0; j < kCols; ++j) dst[i * dst_row + j] = src[i + j * src_col];
}

template <bool kStream>
void transpose_words(const uint32_t* source, int64_t src_col, uint32_t* target, int64_t dst_row, int64_t rows,
                     int64_t cols) {
  // In caches: tiles of 256 x 256, so that the lines of a tile of the target stay in L2. From DRAM to DRAM: bands of 32
  // source columns from end to end, 32 streams in, pairs of lines out. 4096 x 4096 on one thread, where a copy gets 26
  // GB/s: tiles 12.2; bands of 16 16.3, of 32 16.8, of 64 13; bands along the target 7.2; tiles of 1024 x 64 with the
  // next one prefetched 15.0; tiles turned in a buffer and written as runs of 512 to 2048 bytes 9.8 to 13.6.
  constexpr int64_t kTile = 256, kBand = 32;
  const float* src = reinterpret_cast<const float*>(source);
  float* dst = reinterpret_cast<float*>(target);
  const int64_t whole_rows = rows / kSide * kSide, whole_cols = cols / kSide * kSide;
  auto block = [&](int64_t i, int64_t j) HWY_ATTR {
    transpose_block<kStream>(src + i + j * src_col, src_col, dst + i * dst_row + j, dst_row);
  };
  if (kStream) {
    for (int64_t j0 = 0; j0 < whole_cols; j0 += kBand) {
      const int64_t j1 = j0 + kBand < whole_cols ? j0 + kBand : whole_cols;
      for (int64_t i = 0; i < whole_rows; i += kSide)
        for (int64_t j = j0; j < j1; j += kSide) block(i, j);
    }
  } else {
    for (int64_t i0 = 0; i0 < whole_rows; i0 += kTile) {
      const int64_t i1 = i0 + kTile < whole_rows ? i0 + kTile : whole_rows;
      for (int64_t j0 = 0; j0 < whole_cols; j0 += kTile) {
        const int64_t j1 = j0 + kTile < whole_cols ? j0 + kTile : whole_cols;
        for (int64_t j = j0; j < j1; j += kSide)
          for (int64_t i = i0; i < i1; i += kSide) block(i, j);
      }
    }
  }
  if (whole_cols < cols)
    transpose_generic(source + whole_cols * src_col, src_col, target + whole_cols, dst_row, whole_rows,
                      cols - whole_cols);
  if (whole_rows < rows)
    transpose_generic(source + whole_rows, src_col, target + whole_rows * dst_row, dst_row, rows - whole_rows, cols);
}

template <typename T>
void transpose_tile(const T* src, int64_t src_col, T* dst, int64_t dst_row, int64_t rows, int64_t cols, bool stream) {
  switch (cols) {
    case 1:
      return transpose_narrow<1>(src, src_col, dst, dst_row, rows);
    case 2:
      return transpose_narrow<2>(src, src_col, dst, dst_row, rows);
    case 3:
      return transpose_narrow<3>(src, src_col, dst, dst_row, rows);
    case 4:
      return transpose_narrow<4>(src, src_col, dst, dst_row, rows);
    default:
      break;
  }
  if constexpr (sizeof(T) != 4) {
    transpose_generic(src, src_col, dst, dst_row, rows, cols);
  } else {
    const bool aligned = (reinterpret_cast<uintptr_t>(dst) & 63) == 0 && dst_row % 16 == 0;
    // AVX2 writes half a line at a time: the write-combining buffers would be flushed half full by the other rows.
    if (stream && aligned && kSide == 16)
      transpose_words<true>(src, src_col, dst, dst_row, rows, cols);
    else
      transpose_words<false>(src, src_col, dst, dst_row, rows, cols);
  }
}

template <typename T>
void copy_as(const void* from, int64_t src_row, int64_t src_col, void* to, int64_t dst_row, int64_t dst_col,
             int64_t rows, int64_t cols, bool stream) {
  const T* src = static_cast<const T*>(from);
  T* dst = static_cast<T*>(to);
  if (src_col == 1 && dst_col == 1) {
    copy_rows(reinterpret_cast<const uint8_t*>(src), src_row * int64_t(sizeof(T)), reinterpret_cast<uint8_t*>(dst),
              dst_row * int64_t(sizeof(T)), rows, cols * int64_t(sizeof(T)), stream);
  } else if (src_row == 1 && dst_col == 1) {
    transpose_tile(src, src_col, dst, dst_row, rows, cols, stream);
  } else if (src_col == 0 && dst_col == 1) {
    for (int64_t i = 0; i < rows; ++i) {
      const T value = src[i * src_row];
      for (int64_t j = 0; j < cols; ++j) dst[i * dst_row + j] = value;
    }
  } else if (dst_col == 1) {
    copy_strided(src, src_row, src_col, dst, dst_row, 1, rows, cols);
  } else {
    copy_strided(src, src_row, src_col, dst, dst_row, dst_col, rows, cols);
  }
}

void tile(int bytes, const void* src, int64_t src_row, int64_t src_col, void* dst, int64_t dst_row, int64_t dst_col,
          int64_t rows, int64_t cols, bool stream) {
  switch (bytes) {
    case 1:
      copy_as<uint8_t>(src, src_row, src_col, dst, dst_row, dst_col, rows, cols, stream);
      break;
    case 2:
      copy_as<uint16_t>(src, src_row, src_col, dst, dst_row, dst_col, rows, cols, stream);
      break;
    case 4:
      copy_as<uint32_t>(src, src_row, src_col, dst, dst_row, dst_col, rows, cols, stream);
      break;
    default:
      copy_as<uint64_t>(src, src_row, src_col, dst, dst_row, dst_col, rows, cols, stream);
  }
  if (stream) hwy::FlushStream();  // before another thread is told
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {

HWY_EXPORT(tile);

void copy_tile(int bytes, const void* src, int64_t src_row, int64_t src_col, void* dst, int64_t dst_row,
               int64_t dst_col, int64_t rows, int64_t cols, bool stream) {
  HWY_DYNAMIC_DISPATCH(tile)(bytes, src, src_row, src_col, dst, dst_row, dst_col, rows, cols, stream);
}

void fill_elements(int bytes, const void* value, void* dst, int64_t n) {
  if (bytes == 1) {
    std::memset(dst, *static_cast<const unsigned char*>(value), size_t(n));
    return;
  }
  copy_tile(bytes, value, 0, 0, dst, 0, 1, 1, n, false);
}

}  // namespace ridgeline::cpu
#endif
