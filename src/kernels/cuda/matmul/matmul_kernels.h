#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cuda {

// One of each for MatMul, FusedMatMul and Gemm; cores also for the products of integers.
extern const Kernel kMatMulWgmma[3];   // bf16 and f16 on sm_90
extern const Kernel kMatMulSplitK[3];  // the same, k shared by a cluster
extern const Kernel kMatMulMma[3];     // the same from sm_80 on, any alignment
extern const Kernel kMatMulCores[5];   // any type, any strides

}  // namespace ridgeline::cuda
