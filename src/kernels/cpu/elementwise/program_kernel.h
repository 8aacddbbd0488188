#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

extern constinit const Kernel kProgram;

}  // namespace ridgeline::cpu
