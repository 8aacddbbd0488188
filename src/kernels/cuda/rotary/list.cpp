// The kernels of rotary positions and of caches.
#include "kernels/cuda/families.h"
#include "kernels/cuda/rotary/rotary_kernels.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> rotary_kernels() {
  static constexpr const Kernel* kList[] = {&kRotary, &kTensorScatter, &kRotaryAppend};
  return kList;
}

}  // namespace ridgeline::cuda
