// 5. Registers: a tile of C, 6 rows of two vectors, stays in registers while k runs.
//
// The tile is loaded and stored once for each block of k instead of once for each multiply-add. For 12 multiply-adds
// the inner loop loads 2 vectors of B and 6 single floats of A (which the instruction copies to all lanes): 8 loads, at
// two a cycle, take 4 cycles; 12 multiply-adds, at two a cycle, take 6. Arithmetic binds for the first time. Twelve
// sums that do not wait for each other also hide the 4 cycles that each multiply-add takes.
#include "teach/matmul_steps.h"
//
#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "teach/matmul_5_registers.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::teach {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <int kRows>
void tile(const Matmul& t, int64_t i, int64_t j, int64_t p0, int64_t p1) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d));
  hn::Vec<decltype(d)> sums[kRows][2];
  for (int r = 0; r < kRows; ++r)
    for (int v = 0; v < 2; ++v) sums[r][v] = hn::LoadU(d, t.c + (i + r) * t.row + j + v * lanes);
  for (int64_t p = p0; p < p1; ++p) {
    const auto b0 = hn::LoadU(d, t.b + p * t.row + j), b1 = hn::LoadU(d, t.b + p * t.row + j + lanes);
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
        int64_t i = 0;
        for (; i + 6 <= t.m; i += 6) tile<6>(t, i, j, p0, p1);
        for (; i < t.m; ++i) tile<1>(t, i, j, p0, p1);
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
void matmul_5_registers(const Matmul& t) {
  matmul_clear(t);
  HWY_DYNAMIC_DISPATCH(multiply)(t);
}
}  // namespace ridgeline::teach
#endif
