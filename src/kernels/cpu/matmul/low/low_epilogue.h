// LowBitMatMul's epilogue and result: a block of sums in L1 goes through the program and is stored in y's type.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/elementwise/program_block.h"
#include "kernels/kernel.h"

namespace ridgeline::cpu {

struct LowEpilogue {
  std::string refusal;  // empty: the rest holds
  std::shared_ptr<const PreparedProgram> program;
  struct Operand {
    int input;
    int64_t element_bytes, row, col;
  };
  std::vector<Operand> operands;
  DType y = DType::kF32;
  int64_t n = 0;
};

LowEpilogue low_epilogue(const Problem& problem);

/// sums[rows][32]; changed. `stream`: stored past the caches, where y is f32 or bf16.
void low_finish(const LowEpilogue& epilogue, const Buffers& buffers, int64_t row, int64_t col, int rows, int cols,
                float* sums, bool stream);

}  // namespace ridgeline::cpu
