// 2. Reordered: the two inner loops change places. The innermost now walks along a row of B and a row of C.
//
// The same multiply-adds in another order. Neighbours in memory follow each other, so that each line that is fetched is
// used whole, the hardware fetches the next ones ahead, and the compiler may work on several neighbours at once (four,
// as it may only assume the oldest vectors). No sum waits for itself: the n sums of a row are independent.
// What it costs: C is read and written k times instead of once. Its row fits into the first-level cache.
#include <algorithm>

#include "teach/matmul_steps.h"

namespace ridgeline::teach {

void matmul_clear(const Matmul& t) {
  for (int64_t i = 0; i < t.m; ++i) std::fill_n(t.c + i * t.row, t.n, 0.0f);
}

void matmul_2_reordered(const Matmul& t) {
  matmul_clear(t);
  for (int64_t i = 0; i < t.m; ++i) {
    float* __restrict c = t.c + i * t.row;
    for (int64_t p = 0; p < t.k; ++p) {
      const float a = t.a[i * t.k + p];
      const float* b = t.b + p * t.row;
      for (int64_t j = 0; j < t.n; ++j) c[j] += a * b[j];
    }
  }
}

}  // namespace ridgeline::teach
