#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kSoftmaxKernel, kLogSoftmaxKernel;
extern constinit const Kernel kLayerNormKernel, kRmsNormKernel, kSimplifiedLayerNormKernel, kAddLayerNormKernel,
    kAddRmsNormKernel;
extern constinit const Kernel kBatchNormKernel, kInstanceNormKernel, kGroupNormKernel;

}  // namespace ridgeline::cpu
