// The normalizations: rows, then lanes that lie anywhere.
#include "kernels/cuda/families.h"
#include "kernels/cuda/normalize/norm_kernels.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> normalize_kernels() { return norm_kernels(); }

}  // namespace ridgeline::cuda
