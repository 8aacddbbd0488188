// The attention kernels, best first.
#include "kernels/cuda/attention/attention_kernels.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> attention_kernels() {
  static constexpr const Kernel* kList[] = {
      &kAttentionWgmma,         &kAttentionMma,         &kAttentionDecode,         &kAttentionAny,
      &kStandardAttentionWgmma, &kStandardAttentionMma, &kStandardAttentionDecode, &kStandardAttentionAny};
  return kList;
}

}  // namespace ridgeline::cuda
