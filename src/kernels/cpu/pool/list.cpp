// The pooling kernels, best first.
#include "kernels/cpu/pool/pool_kernels.h"
#include "kernels/cpu/pool/region_kernels.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> pool_kernels() {
  static constexpr const Kernel* kList[] = {
      &kMaxPoolLastKernel,       &kMaxPoolPlanesKernel, &kAveragePoolLastKernel, &kAveragePoolPlanesKernel,
      &kGlobalAveragePoolKernel, &kGlobalMaxPoolKernel, &kRoiAlignKernel,        &kLpPoolKernel,
      &kGlobalLpPoolKernel};
  return kList;
}

}  // namespace ridgeline::cpu
