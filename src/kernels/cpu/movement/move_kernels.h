#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kCopyKernel, kIdentityKernel, kTransposeKernel, kReshapeKernel, kFlattenKernel,
    kSqueezeKernel, kUnsqueezeKernel, kExpandKernel, kTileKernel, kSliceKernel, kConcatKernel, kSplitKernel,
    kDepthToSpaceKernel, kSpaceToDepthKernel, kPadKernel;
extern constinit const Kernel kGatherKernel, kResizeKernel, kTriluKernel, kFillKernel;

}  // namespace ridgeline::cpu
