#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kAttentionTilesKernel, kAttentionRowsKernel;  // of ScaledDotProductAttention
extern constinit const Kernel kStandardAttentionTilesKernel, kStandardAttentionRowsKernel;  // of Attention

extern constinit const Kernel kRotaryKernel, kTensorScatterKernel, kRotaryAppendKernel;

}  // namespace ridgeline::cpu
