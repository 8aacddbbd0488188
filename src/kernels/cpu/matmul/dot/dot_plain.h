// The tiles for levels without dot products or AVX2.
#pragma once

#include "kernels/cpu/matmul/dot/dot_micro.h"

namespace ridgeline::cpu {

/// u8 x s8 on vectors that the compiler lowers; nothing for bf16, which cpu.matmul widens to f32.
const DotKernels& dot_plain_kernels(DotType type);

}  // namespace ridgeline::cpu
