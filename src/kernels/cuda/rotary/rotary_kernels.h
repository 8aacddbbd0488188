#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cuda {

extern constinit const Kernel kRotary, kTensorScatter, kRotaryAppend;

}  // namespace ridgeline::cuda
