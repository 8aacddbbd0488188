// 1. Naive: each element of C is the product of a row of A and a column of B, as the definition says.
//
// Why it is slow: a column of B lies `row` floats apart. Each of its elements is on another line of 64 bytes, of which
// 4 are used, and for n >= 1024 on another page of 4 KiB, for which the address has to be looked up. The hardware
// fetches a line ahead where it sees the next line asked for; here it sees jumps. And each sum waits for the one
// before it: an addition takes 4 cycles, so that the arithmetic stands still for 3 of 4.
#include "teach/matmul_steps.h"

namespace ridgeline::teach {

void matmul_columns(const Matmul& t, int64_t begin) {
  for (int64_t i = 0; i < t.m; ++i) {
    for (int64_t j = begin; j < t.n; ++j) {
      float sum = 0;
      for (int64_t p = 0; p < t.k; ++p) sum += t.a[i * t.k + p] * t.b[p * t.row + j];
      t.c[i * t.row + j] = sum;
    }
  }
}

void matmul_1_naive(const Matmul& t) { matmul_columns(t, 0); }

}  // namespace ridgeline::teach
