#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cuda {

extern const Kernel kMatVec[3];  // MatMul, FusedMatMul, Gemm
extern const Kernel kMatVecLow, kMatMulLow, kLowPlain;

}  // namespace ridgeline::cuda
