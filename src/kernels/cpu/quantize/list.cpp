#include "kernels/cpu/quantize/quantize_kernels.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> quantize_kernels() {
  static constexpr const Kernel* kList[] = {&kQuantizeKernel, &kDequantizeKernel, &kDynamicQuantizeKernel};
  return kList;
}

}  // namespace ridgeline::cpu
