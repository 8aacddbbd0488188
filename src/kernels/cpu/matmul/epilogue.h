// Which part of an epilogue program the registers can do.
#pragma once

#include <limits>
#include <vector>

#include "ir/program.h"

namespace ridgeline::cpu {

/// How an operand of the program lies over the output's rows and columns.
struct EpilogueOperand {
  bool f32 = false;
  bool row_constant = false;  // the same for all rows of a matrix
  bool unit_columns = false;  // contiguous along a row
};

/// alpha * v + bias + residual, clamped. The program's inputs are numbered as it numbers them (0 is v); 0: none.
struct RegisterEpilogue {
  bool ok = false;
  float alpha = 1;
  int bias = 0, residual = 0;
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
};

RegisterEpilogue read_epilogue(const Program& program, const std::vector<EpilogueOperand>& operands);

}  // namespace ridgeline::cpu
