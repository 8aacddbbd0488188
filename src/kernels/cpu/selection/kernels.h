#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kBoxesKernel;

}  // namespace ridgeline::cpu
