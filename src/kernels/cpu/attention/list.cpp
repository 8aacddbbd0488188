// The attention kernels, best first.
#include "kernels/kernel.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> attention_kernels() { return {}; }

}  // namespace ridgeline::cpu
