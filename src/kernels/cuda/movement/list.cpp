// The movement kernels.
#include "kernels/cuda/families.h"
#include "kernels/cuda/movement/movement_kernels.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> movement_kernels() {
  static const std::vector<const Kernel*> list = [] {
    std::vector<const Kernel*> all(move_kernels().begin(), move_kernels().end());
    all.insert(all.end(), pick_kernels().begin(), pick_kernels().end());
    return all;
  }();
  return list;
}

}  // namespace ridgeline::cuda
