#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kHardmaxKernel, kLpNormalizationKernel, kLrnKernel, kMeanVarianceKernel;

}  // namespace ridgeline::cpu
