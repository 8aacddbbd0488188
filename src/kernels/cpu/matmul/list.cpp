#include "kernels/cpu/matmul/kernels.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> matmul_kernels() {
  static const Kernel* const list[] = {
      &kMatVec[0],       &kMatVec[1],       &kMatVec[2],       &kMatMulPacked[0], &kMatMulPacked[1], &kMatMulPacked[2],
      &kMatMulSplitK[0], &kMatMulSplitK[1], &kMatMulSplitK[2], &kMatMulAny[0],    &kMatMulAny[1],    &kMatMulAny[2],
      &kMatMulDot[0],    &kMatMulDot[1],    &kMatMulDot[2],    &kMatMulDot[3],    &kLowBit,          &kLowBf16,
  };
  return list;
}

}  // namespace ridgeline::cpu
