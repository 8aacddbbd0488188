#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kCumSumKernel, kCumProdKernel;
extern constinit const Kernel kReduceLogSumKernel, kReduceLogSumExpKernel;

}  // namespace ridgeline::cpu
