// The movement kernels; one an operator so far.
#include "kernels/cpu/movement/move_kernels.h"
#include "kernels/cpu/movement/select_kernels.h"

namespace ridgeline::cpu {

std::span<const Kernel* const> movement_kernels() {
  static constexpr const Kernel* kList[] = {
      &kCopyKernel,     &kIdentityKernel,  &kTransposeKernel, &kReshapeKernel,      &kFlattenKernel,
      &kSqueezeKernel,  &kUnsqueezeKernel, &kExpandKernel,    &kTileKernel,         &kSliceKernel,
      &kConcatKernel,   &kSplitKernel,     &kPadKernel,       &kDepthToSpaceKernel, &kSpaceToDepthKernel,
      &kGatherKernel,   &kResizeKernel,    &kTriluKernel,     &kFillKernel,         &kBitCastKernel,
      &kCompressKernel, &kGridSampleKernel};
  return kList;
}

}  // namespace ridgeline::cpu
