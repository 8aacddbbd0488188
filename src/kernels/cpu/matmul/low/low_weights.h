// How LowBitMatMul's weights are kept: panels of 32 columns (rows of q), so that a panel's levels are one stream.
//
//   8 bits   [n / 32][k / 4][32][4], each level plus 128, so that it is unsigned
//   4 bits   [n / 32][k / 8][32][4]: the low halves are k 0 to 3 of the eight, the high ones 4 to 7
//   16 bits  [n / 32][k][32]
//   scales, zeros, minima  [n / 32][groups][32] in their own type
// Missing columns are 0.
#pragma once

#include <cstdint>
#include <string>

#include "ir/problem.h"
#include "kernels/kernel.h"

namespace ridgeline::cpu {

inline constexpr int kLowColumns = 32;

struct LowShape {
  std::string refusal;  // empty: the rest holds
  int64_t m = 0, n = 0, k = 0;
  int bits = 0;
  bool quantize = false;          // act = i8
  int64_t group = 0, groups = 0;  // of scale, zero and min along k; 16 bits: none
  int64_t chunk = 0, chunks = 0;  // the longest stretch of k with one scale of w and one of a
  int64_t act_block = 0;
  int offset = 0;  // what the stored levels of 4 and 8 bits have to be less by, where no zero is given
  bool zero = false, min = false;
  DType a = DType::kF32, q = DType::kI8, y = DType::kF32;
  int64_t a_row_stride = 0;
  int64_t panels() const { return (n + kLowColumns - 1) / kLowColumns; }
  int64_t panel_bytes() const { return k * bits / 8 * kLowColumns; }
  bool subtracts() const { return zero || min; }  // more than the offset
};

LowShape low_shape(const Problem& problem);
double low_estimate(const Problem& problem, const Tile&, const Ceilings& ceilings);

/// Bytes of input `input` in panels, and the packing itself.
int64_t low_packed_bytes(const Problem& problem, int input);
void low_pack(const Problem& problem, int input, const Tensor& source, void* packed);

}  // namespace ridgeline::cpu
