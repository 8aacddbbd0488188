// The elementwise kernels, best first.
#include "kernels/cuda/elementwise/elementwise_kernels.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> elementwise_kernels() {
  static constexpr const Kernel* kList[] = {&kProgram, &kInterpreted};
  return kList;
}

}  // namespace ridgeline::cuda
