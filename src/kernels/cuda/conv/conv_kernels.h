#pragma once

#include <array>

#include "kernels/kernel.h"

namespace ridgeline::cuda {

extern const Kernel kConvSplit;
extern const Kernel kConvStem;
extern const Kernel kConvWgmma;
extern const Kernel kDepthwise;
extern const std::array<Kernel, 4> kConvGathered;  // conv_mma, conv_fma: Conv, ConvTranspose each
extern const std::array<Kernel, 4> kConvDirect;    // Conv, ConvTranspose, ConvInteger, QLinearConv

}  // namespace ridgeline::cuda
