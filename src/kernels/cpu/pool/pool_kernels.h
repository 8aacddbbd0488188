#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kMaxPoolLastKernel, kAveragePoolLastKernel;      // channels last
extern constinit const Kernel kMaxPoolPlanesKernel, kAveragePoolPlanesKernel;  // planes
extern constinit const Kernel kGlobalAveragePoolKernel, kGlobalMaxPoolKernel;  // either

}  // namespace ridgeline::cpu
