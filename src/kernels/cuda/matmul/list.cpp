// The kernels of matrix products, best first.
#include "kernels/cuda/matmul/matmul_kernels.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> matmul_kernels() {
  static constexpr const Kernel* kList[] = {&kMatMulCores[0], &kMatMulCores[1], &kMatMulCores[2], &kMatMulCores[3]};
  return kList;
}

}  // namespace ridgeline::cuda
