#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cuda {

extern const Kernel kProgram;

}  // namespace ridgeline::cuda
