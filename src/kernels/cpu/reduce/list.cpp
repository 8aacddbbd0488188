// The kernels of reductions; one an operator so far.
#include "kernels/cpu/reduce/reduce_kernels.h"
#include "kernels/cpu/reduce/scan_kernels.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> reduce_kernels() {
  static constexpr const Kernel* kList[] = {
      &kReduceSumKernel, &kReduceMeanKernel, &kReduceMaxKernel,       &kReduceMinKernel,      &kReduceProdKernel,
      &kReduceL1Kernel,  &kReduceL2Kernel,   &kReduceSumSquareKernel, &kArgMaxKernel,         &kArgMinKernel,
      &kCumSumKernel,    &kCumProdKernel,    &kReduceLogSumKernel,    &kReduceLogSumExpKernel};
  return kList;
}

}  // namespace ridgeline::cpu
