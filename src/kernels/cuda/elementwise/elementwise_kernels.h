#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cuda {

extern const Kernel kProgram;
extern const Kernel kInterpreted;

}  // namespace ridgeline::cuda
