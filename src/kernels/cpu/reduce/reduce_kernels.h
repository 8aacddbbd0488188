#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kReduceSumKernel, kReduceMeanKernel, kReduceMaxKernel, kReduceMinKernel,
    kReduceProdKernel, kReduceL1Kernel, kReduceL2Kernel, kReduceSumSquareKernel;
extern constinit const Kernel kArgMaxKernel, kArgMinKernel;

}  // namespace ridgeline::cpu
