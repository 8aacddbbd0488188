#pragma once

#include "kernels/kernel.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> recurrent_kernels();

extern constinit const Kernel kLstmKernel, kGruKernel, kRnnKernel;

}  // namespace ridgeline::cpu
