#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

// One of each for MatMul, FusedMatMul and Gemm.
extern const Kernel kMatVec[3];         // few rows, B packed ahead
extern const Kernel kMatMulPacked[3];   // B packed ahead
extern const Kernel kMatMulSplitK[3];   // B packed ahead, fewer tiles than threads and a long k
extern const Kernel kMatMulAny[3];      // any B
extern const Kernel kLowBit, kLowBf16;  // LowBitMatMul
extern const Kernel kMatMulDot[4];      // bf16, and 8-bit integers for MatMulInteger

}  // namespace ridgeline::cpu
