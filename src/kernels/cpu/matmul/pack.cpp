#include "kernels/cpu/matmul/pack.h"

#include <cstring>

#include "kernels/cpu/matmul/gemm.h"
#include "kernels/cpu/matmul/micro.h"
#include "kernels/cpu/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/pack.cpp"
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
constexpr int64_t kLanes = int64_t(hn::MaxLanes(D()));

#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
// Vector whose 128-bit block q is four floats of row 4 q.
V LoadBlocks(const float* p, int64_t row) {
  const hn::Full128<float> d4;
  const hn::Full256<float> d8;
#if HWY_TARGET == HWY_AVX3
  const auto low = hn::Combine(d8, hn::LoadU(d4, p + 4 * row), hn::LoadU(d4, p));
  const auto high = hn::Combine(d8, hn::LoadU(d4, p + 12 * row), hn::LoadU(d4, p + 8 * row));
  return hn::Combine(D(), high, low);
#else
  return hn::Combine(d8, hn::LoadU(d4, p + 4 * row), hn::LoadU(d4, p));
#endif
}

// dst[c * dst_row + r] = src[r * src_row + c] for a vector's lanes of r and four c: a 4x4 transpose in every 128-bit
// block.
void TransposeStrip(const float* src, int64_t src_row, float* dst, int64_t dst_row, V scale) {
  const D d;
  const hn::RepartitionToWide<hn::RebindToUnsigned<D>> d2;
  const V a = LoadBlocks(src, src_row), b = LoadBlocks(src + src_row, src_row);
  const V c = LoadBlocks(src + 2 * src_row, src_row), e = LoadBlocks(src + 3 * src_row, src_row);
  const auto ab_low = hn::BitCast(d2, hn::InterleaveLower(d, a, b)),
             ab_high = hn::BitCast(d2, hn::InterleaveUpper(d, a, b));
  const auto ce_low = hn::BitCast(d2, hn::InterleaveLower(d, c, e)),
             ce_high = hn::BitCast(d2, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::Mul(scale, hn::BitCast(d, hn::InterleaveLower(d2, ab_low, ce_low))), d, dst);
  hn::StoreU(hn::Mul(scale, hn::BitCast(d, hn::InterleaveUpper(d2, ab_low, ce_low))), d, dst + dst_row);
  hn::StoreU(hn::Mul(scale, hn::BitCast(d, hn::InterleaveLower(d2, ab_high, ce_high))), d, dst + 2 * dst_row);
  hn::StoreU(hn::Mul(scale, hn::BitCast(d, hn::InterleaveUpper(d2, ab_high, ce_high))), d, dst + 3 * dst_row);
}
constexpr int64_t kStrip = 4;
#else
// The baseline has one lane with some compilers and four with others.
void TransposeStrip(const float* src, int64_t src_row, float* dst, int64_t, V scale) {
  const float factor = hn::GetLane(scale);
  for (int64_t r = 0; r < kLanes; ++r) dst[r] = factor * src[r * src_row];
}
constexpr int64_t kStrip = 1;
#endif

// dst[c * dst_row + r] = scale * src[r * src_row + c], r < rows, c < cols.
void Transpose(const float* src, int64_t src_row, int64_t rows, int64_t cols, float* dst, int64_t dst_row,
               float scale) {
  const V scales = hn::Set(D(), scale);
  int64_t r = 0;
  for (; r + kLanes <= rows; r += kLanes) {
    int64_t c = 0;
    for (; c + kStrip <= cols; c += kStrip)
      TransposeStrip(src + r * src_row + c, src_row, dst + c * dst_row + r, dst_row, scales);
    for (; c < cols; ++c)
      for (int64_t i = r; i < r + kLanes; ++i) dst[c * dst_row + i] = scale * src[i * src_row + c];
  }
  for (; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c) dst[c * dst_row + r] = scale * src[r * src_row + c];
}

void PackPanel(const float* b, int64_t stride_k, int64_t stride_n, int64_t k, int64_t cols, float* dst, float scale) {
  const D d;
  constexpr int64_t kWidth = 2 * kLanes;
  const V scales = hn::Set(d, scale);
  if (stride_n == 1) {
    const auto first = hn::FirstN(d, size_t(cols < kLanes ? cols : kLanes));
    const auto second = hn::FirstN(d, size_t(cols < kLanes ? 0 : cols - kLanes));
    for (int64_t t = 0; t < k; ++t, b += stride_k, dst += kWidth) {
      hn::StoreU(hn::Mul(scales, LoadMasked(first, d, b)), d, dst);
      hn::StoreU(hn::Mul(scales, cols > kLanes ? LoadMasked(second, d, b + kLanes) : hn::Zero(d)), d, dst + kLanes);
    }
    return;
  }
  if (cols < kWidth) {
    for (int64_t t = 0; t < k; ++t)
      for (int64_t j = cols; j < kWidth; ++j) dst[t * kWidth + j] = 0;
  }
  if (stride_k == 1) return Transpose(b, stride_n, cols, k, dst, kWidth, scale);
  for (int64_t t = 0; t < k; ++t)
    for (int64_t j = 0; j < cols; ++j) dst[t * kWidth + j] = scale * b[t * stride_k + j * stride_n];
}

void PackRows(const float* a, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t k, float* dst,
              int64_t dst_row) {
  const D d;
  if (row_stride == 1 && k_stride != 1) return Transpose(a, k_stride, k, rows, dst, dst_row, 1.0f);
  for (int64_t r = 0; r < rows; ++r, a += row_stride, dst += dst_row) {
    int64_t t = 0;
    if (k_stride == 1) {
      for (; t + 2 * kLanes <= k; t += 2 * kLanes) {
        const V x = hn::LoadU(d, a + t), y = hn::LoadU(d, a + t + kLanes);
        hn::StoreU(x, d, dst + t);
        hn::StoreU(y, d, dst + t + kLanes);
      }
    }
    for (; t < k; ++t) dst[t] = a[t * k_stride];
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::cpu {
namespace {
HWY_EXPORT(PackPanel);
HWY_EXPORT(PackRows);
}  // namespace

void pack_panel(const float* b, int64_t stride_k, int64_t stride_n, int64_t k, int64_t cols, float* dst, float scale) {
  HWY_DYNAMIC_DISPATCH(PackPanel)(b, stride_k, stride_n, k, cols, dst, scale);
}

void pack_rows(const float* a, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t k, float* dst,
               int64_t dst_row) {
  HWY_DYNAMIC_DISPATCH(PackRows)(a, row_stride, k_stride, rows, k, dst, dst_row);
}

int panel_width() { return 2 * micro_kernels().lanes; }

int64_t packed_b_floats(int64_t k, int64_t n) {
  const int64_t width = panel_width();
  return (n + width - 1) / width * width * k;
}

void pack_b(const float* b, int64_t stride_k, int64_t stride_n, int64_t k, int64_t n, float* packed, float scale,
            int64_t first, int64_t last) {
  const int64_t width = panel_width();
  for (int64_t j = first; j < last; j += width)
    pack_panel(b + j * stride_n, stride_k, stride_n, k, n - j < width ? n - j : width, packed + j * k, scale);
}

}  // namespace ridgeline::cpu
#endif
