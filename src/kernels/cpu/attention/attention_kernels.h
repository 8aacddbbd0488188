#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kAttentionTilesKernel, kAttentionRowsKernel;

}  // namespace ridgeline::cpu
