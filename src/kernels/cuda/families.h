// The lists of kernels for GPUs, one a family (src/kernels/cuda/<family>/list.cpp), for the registry alone.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> matmul_kernels();

}  // namespace ridgeline::cuda
