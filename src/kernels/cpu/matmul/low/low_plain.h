// LowBitMatMul's tile with quantized activations for levels without dot products or AVX2.
#pragma once

#include "kernels/cpu/matmul/low/low_tiles.h"

namespace ridgeline::cpu {

/// On vectors that the compiler lowers.
LowDotKernels low_plain_kernels();

}  // namespace ridgeline::cpu
