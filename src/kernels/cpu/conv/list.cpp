#include <array>

#include "kernels/cpu/conv/kernels.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> conv_kernels() {
  static constexpr std::array kList{&kConvDepthwiseNhwc,
                                    &kConvDepthwiseNchw,
                                    &kConvWinograd,
                                    &kConvNhwc,
                                    &kConvNchw,
                                    &kConvTransposeNhwc,
                                    &kConvTransposeNchw,
                                    &kConvDepthwiseNarrow[0],
                                    &kConvDepthwiseNarrow[1],
                                    &kConvDot[0],
                                    &kConvDot[1]};
  return kList;
}

}  // namespace ridgeline::cpu
