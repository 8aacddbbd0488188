// 3. Tiled: B is worked on in blocks that fit into the second-level cache, and each row of A meets a block while it
// is there.
//
// Before, every row of A walked over the whole of B: if B is larger than the cache, all of it came from behind the
// cache m times. A block of 256 x 512 floats is fetched once and used m times. What it costs: C passes once for each
// block of k, A once for each block of n, which is k/256 and n/512 times instead of the m times of B.
#include <algorithm>

#include "teach/matmul_steps.h"

namespace ridgeline::teach {

void matmul_3_tiled(const Matmul& t) {
  matmul_clear(t);
  for (int64_t j0 = 0; j0 < t.n; j0 += kBlockN) {
    const int64_t j1 = std::min(t.n, j0 + kBlockN);
    for (int64_t p0 = 0; p0 < t.k; p0 += kBlockK) {
      const int64_t p1 = std::min(t.k, p0 + kBlockK);
      for (int64_t i = 0; i < t.m; ++i) {
        float* __restrict c = t.c + i * t.row;
        for (int64_t p = p0; p < p1; ++p) {
          const float a = t.a[i * t.k + p];
          const float* b = t.b + p * t.row;
          for (int64_t j = j0; j < j1; ++j) c[j] += a * b[j];
        }
      }
    }
  }
}

}  // namespace ridgeline::teach
