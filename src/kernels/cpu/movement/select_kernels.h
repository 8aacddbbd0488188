// Kernels of movement operators that choose what they read.
#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kBitCastKernel, kCompressKernel, kGridSampleKernel;

}  // namespace ridgeline::cpu
