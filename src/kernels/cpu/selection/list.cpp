#include "kernels/cpu/families.h"
#include "kernels/cpu/selection/kernels.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> selection_kernels() {
  static constexpr const Kernel* kList[] = {&kBoxesKernel};
  return kList;
}

}  // namespace ridgeline::cpu
