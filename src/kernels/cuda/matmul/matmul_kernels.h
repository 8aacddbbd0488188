#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cuda {

// One of each for MatMul, FusedMatMul and Gemm; cores also for MatMulInteger.
extern const Kernel kMatMulCores[4];  // any type, any strides

}  // namespace ridgeline::cuda
