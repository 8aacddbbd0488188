#include "kernels/cpu/recurrent/recurrent_kernels.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> recurrent_kernels() {
  static constexpr const Kernel* kList[] = {&kLstmKernel, &kGruKernel, &kRnnKernel};
  return kList;
}

}  // namespace ridgeline::cpu
