#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cuda {

extern const Kernel kMatVec[3], kMatVecBulk[3];  // MatMul, FusedMatMul, Gemm
extern const Kernel kMatVecLow, kMatVecLowBulk, kMatMulLow, kLowPlain;

}  // namespace ridgeline::cuda
