#pragma once

#include "kernels/cuda/lanes.h"
#include "kernels/kernel.h"

namespace ridgeline::cuda {

/// As reduce.cu numbers them.
enum class Fold { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kLogSum, kLogSumExp, kSumSquare, kArgMax, kArgMin };

}  // namespace ridgeline::cuda
