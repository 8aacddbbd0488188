// Which instructions the compiler made of a kernel's source.
#pragma once

#include <string>
#include <string_view>

#include "kernels/cuda/compiler.h"

namespace ridgeline::cuda {

/// The instructions that use the tensor cores. Each of them becomes its machine instruction (HMMA, IMMA, QMMA, HGMMA)
/// or does not compile: PTX shows what the machine code has.
struct MatrixInstructions {
  int mma = 0;    // mma.sync, of a warp
  int wgmma = 0;  // wgmma.mma_async, of a warpgroup
  int all() const { return mma + wgmma; }
};
MatrixInstructions matrix_instructions_in(std::string_view ptx);

/// In the code of `source` for the level of the target, compiled to PTX (a cubin has no text to be searched). Throws as
/// `compile` does.
MatrixInstructions matrix_instructions(const Source& source);

/// "128 wgmma", "64 mma.sync", "none".
std::string words(const MatrixInstructions& found);

}  // namespace ridgeline::cuda
