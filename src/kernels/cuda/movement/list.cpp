// The movement kernels.
#include "kernels/cuda/families.h"
#include "kernels/cuda/movement/movement_kernels.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> movement_kernels() { return move_kernels(); }

}  // namespace ridgeline::cuda
