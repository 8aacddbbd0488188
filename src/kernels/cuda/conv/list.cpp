// The convolutions, best first.
#include "kernels/cuda/conv/conv_kernels.h"
#include "kernels/cuda/families.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> conv_kernels() {
  static constexpr const Kernel* kList[] = {&kDepthwise,       &kConvStem,        &kConvWgmma,       &kConvSplit,
                                            &kConvGathered[0], &kConvGathered[1], &kConvGathered[2], &kConvGathered[3],
                                            &kConvDirect[0],   &kConvDirect[1],   &kConvDirect[2],   &kConvDirect[3]};
  return kList;
}

}  // namespace ridgeline::cuda
