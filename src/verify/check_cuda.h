// A kernel of the GPU on buffers of the host: what the sweep needs to treat both alike.
#pragma once

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kernels/kernel.h"

namespace ridgeline {

/// Memory of the host that a launch sees a copy of: written back after it.
struct MirroredBuffer {
  void* host = nullptr;
  int64_t bytes = 0;
  int64_t offset = 0;  // of the operand in it
};

/// Copies all buffers to the device, launches, waits and copies them back. `inputs` and `outputs`: indices of buffers,
/// -1 for an absent operand (an output may be the buffer of an input). Throws Error{kResource} if the launch fails.
void run_mirrored(const KernelCall& call, const std::vector<MirroredBuffer>& buffers, const std::vector<int>& inputs,
                  const std::vector<int>& outputs, int workspace);

/// Keeps the sweep from compiling a kernel for every random problem: each pair of operator and kernel gets a few
/// specialisations, and further problems only where their code is one of these. (20,000 problems would be 4,000
/// compilations of elementwise programs alone.) Problems of the CPU are always allowed.
class CompilationBudget {
 public:
  /// Would the kernel run the problem without exceeding what it may compile?
  bool allows(const Problem& problem, const Kernel& kernel, const Tile& tile) const;
  /// It runs: what it needs is compiled from now on.
  void spend(const Problem& problem, const Kernel& kernel, const Tile& tile);

 private:
  using Key = std::pair<const OpSchema*, const Kernel*>;
  std::map<Key, std::set<size_t>> compiled_;  // hashes of sources
};

}  // namespace ridgeline
