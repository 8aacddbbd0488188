#pragma once

#include <array>

#include "kernels/kernel.h"

namespace ridgeline::cuda {

extern const Kernel kConvSplit;
extern const Kernel kConvWgmma;
extern const std::array<Kernel, 4> kConvDirect;    // Conv, ConvTranspose, ConvInteger, QLinearConv

}  // namespace ridgeline::cuda
