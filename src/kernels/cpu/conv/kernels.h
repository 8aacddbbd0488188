// The convolution kernels, one object each.
#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern const Kernel kConvNhwc;
extern const Kernel kConvNchw;
extern const Kernel kConvDepthwiseNhwc;
extern const Kernel kConvDepthwiseNchw;
extern const Kernel kConvWinograd;
extern const Kernel kConvDepthwiseNarrow[2];  // Conv, ConvInteger
extern const Kernel kConvDot[2];              // the same
extern const Kernel kConvTransposeNhwc;
extern const Kernel kConvTransposeNchw;

}  // namespace ridgeline::cpu
