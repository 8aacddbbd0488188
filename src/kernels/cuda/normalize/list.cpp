// The normalizations: rows, then lanes that lie anywhere.
#include "kernels/cuda/families.h"
#include "kernels/cuda/normalize/norm_kernels.h"

namespace ridgeline::cuda {

std::span<const Kernel* const> normalize_kernels() {
  static const std::vector<const Kernel*> list = [] {
    std::vector<const Kernel*> all(norm_kernels().begin(), norm_kernels().end());
    all.push_back(&kBatchNorm);
    return all;
  }();
  return list;
}

}  // namespace ridgeline::cuda
