// The kernels of matrix products, best first.
#include "kernels/cuda/matmul/matmul_kernels.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> matmul_kernels() {
  static constexpr const Kernel* kList[] = {&kMatMulWgmma[0],  &kMatMulWgmma[1],  &kMatMulWgmma[2], &kMatMulSplitK[0],
                                            &kMatMulSplitK[1], &kMatMulSplitK[2], &kMatMulMma[0],   &kMatMulMma[1],
                                            &kMatMulMma[2],    &kMatMulCores[0],  &kMatMulCores[1], &kMatMulCores[2],
                                            &kMatMulCores[3],  &kMatMulCores[4]};
  return kList;
}

}  // namespace ridgeline::cuda
