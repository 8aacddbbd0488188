// Operands on the device: constants packed and uploaded once, sets of buffers that rotate past the second cache.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/kernel.h"

namespace ridgeline {

/// `sets` copies of a problem's operands, shared by the kernels that are compared. Constants have their content.
class CudaBuffers {
 public:
  CudaBuffers(Problem problem, int sets, uint64_t seed, const cuda::Queue& queue);
  const Problem& problem() const { return problem_; }
  int sets() const { return sets_; }
  /// Address of input `i` in a set, as the call's kernel wants it; nullptr for an absent one.
  void* input(const KernelCall& call, int i, int set);
  void* output(int o, int set) const;

 private:
  struct Block {
    cuda::Memory memory;
    int64_t step = 0;
  };
  Block make(int64_t bytes) const;
  Problem problem_;
  int sets_;
  uint64_t seed_;
  const cuda::Queue& queue_;
  std::map<std::pair<int, std::string>, Block> inputs_;
  std::vector<Block> outputs_;
};

/// A kernel loaded for a problem, with its workspace.
class CudaPrepared {
 public:
  CudaPrepared(const Candidate& candidate, CudaBuffers& buffers);
  void launch(cuda::Stream stream, int call);

 private:
  KernelCall call_;
  cuda::Memory workspace_;
  struct Addresses {
    std::vector<void*> inputs, outputs;
  };
  std::vector<Addresses> sets_;
};

}  // namespace ridgeline
