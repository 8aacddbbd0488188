#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kCumSumKernel, kCumProdKernel;

}  // namespace ridgeline::cpu
