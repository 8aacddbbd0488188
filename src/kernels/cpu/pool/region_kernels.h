#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kRoiAlignKernel, kLpPoolKernel, kGlobalLpPoolKernel;

}  // namespace ridgeline::cpu
