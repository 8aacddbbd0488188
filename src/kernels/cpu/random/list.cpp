#include "kernels/cpu/families.h"
#include "kernels/cpu/random/kernels.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> random_kernels() {
  static constexpr const Kernel* kList[] = {&kRandomUniformKernel, &kRandomUniformLikeKernel, &kRandomNormalKernel,
                                            &kRandomNormalLikeKernel, &kMultinomialKernel};
  return kList;
}

}  // namespace ridgeline::cpu
