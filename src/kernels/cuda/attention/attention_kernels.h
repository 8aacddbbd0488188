#pragma once

#include "kernels/cuda/families.h"

namespace ridgeline::cuda {

// Of ridgeline's ScaledDotProductAttention, and of the standard's Attention.
extern constinit const Kernel kAttentionWgmma, kStandardAttentionWgmma;
extern constinit const Kernel kAttentionMma, kStandardAttentionMma;
extern constinit const Kernel kAttentionDecode, kStandardAttentionDecode;
extern constinit const Kernel kAttentionAny, kStandardAttentionAny;

}  // namespace ridgeline::cuda
