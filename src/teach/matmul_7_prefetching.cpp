// 7. Prefetching: while a tile is worked on, what the next one needs is asked for.
//
// The hardware fetches ahead along lines that follow each other within a page. It cannot know that after the last k of
// a tile the next one begins six rows further on: its rows of A and of C are six jumps each, and each tile starts by
// waiting for them. Software can ask: an instruction that starts to fetch a line and waits for nothing. It costs a slot
// of the two loads a cycle, of which the tile leaves some free. It helps where the wait is long (A and C behind the
// second-level cache) and hardly where the next rows are near anyway: the least of all steps.
#include "teach/matmul_steps.h"
//
#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "teach/matmul_7_prefetching.cpp"
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

// The rows i to i + 5 of C that a tile will add to, and the beginnings of those of A: the hardware finds the rest.
void fetch(const Matmul& t, int64_t i, int64_t j, int64_t width, int64_t p0) {
  for (int64_t r = i; r < t.m && r < i + 6; ++r) {
    __builtin_prefetch(t.c + r * t.row + j);
    __builtin_prefetch(t.c + r * t.row + j + width / 2);
    __builtin_prefetch(t.a + r * t.k + p0);
  }
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
        for (; i + 6 <= t.m; i += 6) {
          fetch(t, i + 6, j, width, p0);
          tile<6>(t, i, j, p0, p1, packed);
        }
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
void matmul_7_prefetching(const Matmul& t) {
  matmul_clear(t);
  HWY_DYNAMIC_DISPATCH(multiply)(t);
}
}  // namespace ridgeline::teach
#endif
