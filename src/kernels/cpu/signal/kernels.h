#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kDftKernel, kStftKernel;

}  // namespace ridgeline::cpu
