// A kernel ready to run as a step of a plan would: constants packed, buffers that rotate past the last cache.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel.h"

namespace ridgeline {

/// The problem with random content for those constants that have none, so that kernels can pack them.
Problem with_weights(Problem problem, uint64_t seed);

/// `sets` buffers of `bytes`, one after the other in one block where that makes huge pages of them: a plan's tensors
/// and workspaces lie in one arena, too. (Each by itself, in pages of 4 KiB, attention of 12 heads of 64, 512 by 512,
/// took 7.95 ms instead of 6.81.)
std::vector<std::shared_ptr<void>> allocate_sets(int64_t bytes, int sets);

/// `sets` copies of a problem's operands at different addresses, shared by the kernels that are compared: activations
/// once, constants once a packing. Constants have their content (`with_weights`).
class SharedBuffers {
 public:
  SharedBuffers(Problem problem, int sets, uint64_t seed);
  const Problem& problem() const { return problem_; }
  int sets() const { return sets_; }
  /// Addresses of input `i`, one a set; made and filled at the first call.
  const std::vector<std::shared_ptr<void>>& input(const KernelCall& call, int i);
  const std::vector<std::shared_ptr<void>>& output(int i) const { return outputs_[size_t(i)]; }

 private:
  Problem problem_;
  int sets_;
  uint64_t seed_;
  std::map<std::pair<int, std::string>, std::vector<std::shared_ptr<void>>> inputs_;  // by input and packing
  std::vector<std::vector<std::shared_ptr<void>>> outputs_;
};

class PreparedKernel {
 public:
  PreparedKernel(const Candidate& candidate, SharedBuffers& buffers);
  /// On the next set of buffers.
  void run();

 private:
  struct Addresses {
    std::vector<void*> inputs, outputs;
  };
  KernelCall call_;
  ThreadPool pool_;
  std::vector<std::shared_ptr<void>> memory_;  // keeps the addresses alive
  std::vector<Addresses> sets_;
  std::shared_ptr<void> workspace_;
  size_t next_ = 0;
};

}  // namespace ridgeline
