// The movement kernels, best first.
#include "kernels/kernel.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> movement_kernels() { return {}; }

}  // namespace ridgeline::cpu
