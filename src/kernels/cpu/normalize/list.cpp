// The kernels of softmax and the norms; one an operator so far.
#include "kernels/cpu/normalize/norm_kernels.h"
#include "kernels/cpu/normalize/strip_kernels.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> normalize_kernels() {
  static constexpr const Kernel* kList[] = {&kSoftmaxKernel,
                                            &kLogSoftmaxKernel,
                                            &kLayerNormKernel,
                                            &kRmsNormKernel,
                                            &kSimplifiedLayerNormKernel,
                                            &kAddLayerNormKernel,
                                            &kAddRmsNormKernel,
                                            &kBatchNormKernel,
                                            &kInstanceNormKernel,
                                            &kGroupNormKernel,
                                            &kHardmaxKernel,
                                            &kLpNormalizationKernel,
                                            &kLrnKernel,
                                            &kMeanVarianceKernel};
  return kList;
}

}  // namespace ridgeline::cpu
