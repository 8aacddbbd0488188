// 6. Packed: the block of B is copied once, so that the inner loop reads it from the first byte to the last.
//
// Two rows of B lie `row` floats apart. The first-level cache finds a line by some bits of its address (64 sets of 12
// lines here): where rows are 4096 bytes apart, the lines of a tile's columns all fall into one set, and the 13th
// drives out the first. The addresses of 256 rows are on 256 pages as well, more than the first table of addresses
// holds (64 to 96). Copied as [columns of a tile][k][2 vectors] the block is contiguous. The copy costs a read and a
// write of B, against m/6 readings of it.
#include <algorithm>

#include "teach/matmul_steps.h"
//
#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "teach/matmul_6_packed.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::teach {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <int kRows>
void tile(const Matmul& t, int64_t i, int64_t j, int64_t p0, int64_t p1, const float* packed) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  hn::Vec<decltype(d)> sums[kRows][2];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < 2; ++v) sums[r][v] = hn::LoadU(d, t.c + (i + r) * t.row + j + v * lanes);
  for (int64_t p = p0; p < p1; ++p) {
    const auto b0 = hn::Load(d, packed), b1 = hn::Load(d, packed + lanes);
    packed += 2 * lanes;
    for (int r = 0; r < kRows; ++r) {
      const auto a = hn::Set(d, t.a[(i + r) * t.k + p]);
      sums[r][0] = hn::MulAdd(a, b0, sums[r][0]);
      sums[r][1] = hn::MulAdd(a, b1, sums[r][1]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < 2; ++v) hn::StoreU(sums[r][v], d, t.c + (i + r) * t.row + j + v * lanes);
}

void multiply(const Matmul& t) {
  const int64_t width = 2 * int64_t(hn::Lanes(hn::ScalableTag<float>())), whole = t.n / width * width;
  for (int64_t j0 = 0; j0 < whole; j0 += kBlockN) {
    const int64_t j1 = j0 + kBlockN < whole ? j0 + kBlockN : whole;
    for (int64_t p0 = 0; p0 < t.k; p0 += kBlockK) {
      const int64_t p1 = p0 + kBlockK < t.k ? p0 + kBlockK : t.k;
      for (int64_t j = j0; j < j1; j += width) {
        float* const packed = t.scratch + (j - j0) * (p1 - p0);
        matmul_pack(t, j, width, p0, p1, packed);
        int64_t i = 0;
        for (; i + 6 <= t.m; i += 6) tile<6>(t, i, j, p0, p1, packed);
        for (; i < t.m; ++i) tile<1>(t, i, j, p0, p1, packed);
      }
    }
  }
  matmul_columns(t, whole);
}

}  // namespace HWY_NAMESPACE
}  // namespace
}  // namespace ridgeline::teach
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridgeline::teach {
HWY_EXPORT(multiply);

void matmul_pack(const Matmul& t, int64_t j, int64_t width, int64_t p0, int64_t p1, float* to) {
  for (int64_t p = p0; p < p1; ++p, to += width) std::copy_n(t.b + p * t.row + j, width, to);
}

void matmul_6_packed(const Matmul& t) {
  matmul_clear(t);
  HWY_DYNAMIC_DISPATCH(multiply)(t);
}
}  // namespace ridgeline::teach
#endif
