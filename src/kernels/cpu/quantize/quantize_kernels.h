#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kQuantizeKernel, kDequantizeKernel, kDynamicQuantizeKernel;

}  // namespace ridgeline::cpu
