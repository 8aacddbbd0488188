// The families' lists for GPUs; each is defined in src/kernels/cuda/<family>/list.cpp. Apart from kernel.h, which all
// include.
#pragma once

#include <span>

#include "kernels/kernel.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> attention_kernels();
std::span<const Kernel* const> conv_kernels();
std::span<const Kernel* const> elementwise_kernels();
std::span<const Kernel* const> matmul_kernels();
std::span<const Kernel* const> matvec_kernels();
std::span<const Kernel* const> movement_kernels();
std::span<const Kernel* const> normalize_kernels();
std::span<const Kernel* const> pool_kernels();
std::span<const Kernel* const> quantize_kernels();
std::span<const Kernel* const> reduce_kernels();
std::span<const Kernel* const> rotary_kernels();

}  // namespace ridgeline::cuda
