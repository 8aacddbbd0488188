// Further lists of kernels: apart from kernels/kernel.h, which every kernel includes.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> random_kernels();
std::span<const Kernel* const> selection_kernels();
std::span<const Kernel* const> signal_kernels();

}  // namespace ridgeline::cpu
