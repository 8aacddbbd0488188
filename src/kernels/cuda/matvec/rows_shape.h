// Products of few rows with constant weights (rows.cu): how a problem looks to that kernel, and its packed weights.
#pragma once

#include <cstdint>
#include <string>

#include "ir/problem.h"
#include "kernels/kernel.h"

namespace ridgeline::cuda {

struct RowsShape {
  std::string refusal;  // empty: the rest holds
  int64_t m = 0, n = 0, k = 0;
  int64_t x_row = 0, x_k = 1, y_row = 0, y_column = 1;  // strides in elements
  int c_input = -1;                                     // Gemm's C, where it is added
  int64_t c_row = 0, c_column = 0;
  int row_axes = 0;            // of output 0
  int64_t w_row = 0, w_k = 0;  // strides of the weights' source, in elements
  double alpha = 1, beta = 0;
  DType x = DType::kNone, w = DType::kNone;
  int bits = 16;         // of a weight
  bool round_x = false;  // to bf16
  int64_t groups = 1;    // of scales along k
  int halves = 0;        // groups of 32 times so many of k; 0: one for the whole row
  bool scaled() const { return bits < 16; }
  int64_t steps() const { return (k + 63) / 64; }
  int64_t tiles() const { return (n + 15) / 16; }
  int64_t weight_bytes() const { return tiles() * steps() * 16 * 64 * bits / 8; }
};

RowsShape rows_of_product(const Problem& problem);  // MatMul, FusedMatMul, Gemm
RowsShape rows_of_low_bit(const Problem& problem);
RowsShape plain_low_bit(const Problem& problem);  // any groups, activations quantized or not
RowsShape rows_shape(const Problem& problem);

/// Weights in the order of the matrix instruction's left operand, 16 bytes a lane: [tile of 16 n][step of 64 k][16-byte
/// word of the lane][lane]. Lane 4 g + t holds rows g and g + 8, and of each 32 of k those from 8 t to 8 t + 7.
void pack_rows(const RowsShape& shape, const Tensor& source, void* packed);
/// Scales and what is like them, [n, groups]: [tile][group][8][2], rows 8 apart side by side.
void pack_row_scales(const RowsShape& shape, const Tensor& source, void* packed);
int64_t row_scale_bytes(const RowsShape& shape, const Operand& operand);

}  // namespace ridgeline::cuda
