// The elementwise kernels, best first.
#include "kernels/cpu/elementwise/program_kernel.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> elementwise_kernels() {
  static constexpr const Kernel* kList[] = {&kProgram};
  return kList;
}

}  // namespace ridgeline::cpu
