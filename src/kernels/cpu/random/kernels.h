#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kRandomUniformKernel, kRandomUniformLikeKernel, kRandomNormalKernel,
    kRandomNormalLikeKernel, kMultinomialKernel;

}  // namespace ridgeline::cpu
