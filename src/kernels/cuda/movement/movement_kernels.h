#pragma once

#include <span>

#include "kernels/kernel.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> move_kernels();
std::span<const Kernel* const> pick_kernels();

}  // namespace ridgeline::cuda
