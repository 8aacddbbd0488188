// The convolutions, best first.
#include "kernels/cuda/conv/conv_kernels.h"
#include "kernels/cuda/families.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> conv_kernels() {
  static constexpr const Kernel* kList[] = {&kConvWgmma,     &kConvSplit,     &kConvDirect[0],
                                            &kConvDirect[1], &kConvDirect[2], &kConvDirect[3]};
  return kList;
}

}  // namespace ridgeline::cuda
