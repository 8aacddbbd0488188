#include "kernels/cpu/families.h"
#include "kernels/cpu/signal/kernels.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> signal_kernels() {
  static constexpr const Kernel* kList[] = {&kDftKernel, &kStftKernel};
  return kList;
}

}  // namespace ridgeline::cpu
