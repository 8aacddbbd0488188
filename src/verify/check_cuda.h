// A kernel of the GPU on buffers of the host: what the sweep needs to treat both alike.
#pragma once

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

}  // namespace ridgeline
