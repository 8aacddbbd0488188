// The attention kernels, best first.
#include "kernels/cpu/attention/attention_kernels.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> attention_kernels() {
  static constexpr const Kernel* kList[] = {
      &kAttentionTilesKernel,        &kAttentionRowsKernel, &kStandardAttentionTilesKernel,
      &kStandardAttentionRowsKernel, &kRotaryKernel,        &kTensorScatterKernel,
      &kRotaryAppendKernel};
  return kList;
}

}  // namespace ridgeline::cpu
