// 4. Vectorised: the same loops on the widest registers that the machine has (16 floats with AVX-512, 8 with AVX2),
// multiplied and added by one instruction.
//
// The compiler of this program may not assume wide registers, since it must run on older machines too. This file is
// compiled once for each kind of machine (foreach_target), and the right one is chosen when the program runs. For each
// multiply-add it still loads a vector of B, and loads and stores one of C: a core does two loads and a store a cycle,
// so that of the two multiply-adds it could do in that time it does one or less.
#include "teach/matmul_steps.h"
//
#include "kernels/cpu/simd.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "teach/matmul_4_vectorised.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridgeline::teach {
namespace {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void multiply(const Matmul& t) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = int64_t(hn::Lanes(d)), whole = t.n / lanes * lanes;
  for (int64_t j0 = 0; j0 < whole; j0 += kBlockN) {
    const int64_t j1 = j0 + kBlockN < whole ? j0 + kBlockN : whole;
    for (int64_t p0 = 0; p0 < t.k; p0 += kBlockK) {
      const int64_t p1 = p0 + kBlockK < t.k ? p0 + kBlockK : t.k;
      for (int64_t i = 0; i < t.m; ++i) {
        float* c = t.c + i * t.row;
        for (int64_t p = p0; p < p1; ++p) {
          const auto a = hn::Set(d, t.a[i * t.k + p]);  // in all lanes
          const float* b = t.b + p * t.row;
          for (int64_t j = j0; j < j1; j += lanes)
            hn::StoreU(hn::MulAdd(a, hn::LoadU(d, b + j), hn::LoadU(d, c + j)), d, c + j);
        }
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
void matmul_4_vectorised(const Matmul& t) {
  matmul_clear(t);
  HWY_DYNAMIC_DISPATCH(multiply)(t);
}
}  // namespace ridgeline::teach
#endif
