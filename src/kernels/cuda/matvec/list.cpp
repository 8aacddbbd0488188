// Products of few rows, and of weights of few bits.
#include "kernels/cuda/families.h"
#include "kernels/cuda/matvec/matvec_kernels.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> matvec_kernels() {
  static constexpr const Kernel* kList[] = {&kMatVec[0],     &kMatVec[1],     &kMatVec[2], &kMatVecBulk[0],
                                            &kMatVecBulk[1], &kMatVecBulk[2], &kMatVecLow, &kMatVecLowBulk,
                                            &kMatMulLow,     &kLowPlain};
  return kList;
}

}  // namespace ridgeline::cuda
