// A problem of the family (MatMul, FusedMatMul, Gemm, with any epilogue) as a Gemm: vectors get their axis, batch axes
// that can be rows become rows, and the epilogue is read as alpha, bias, residual and clamp where it is that, or kept
// as a program.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "ir/problem.h"
#include "kernels/cpu/elementwise/program_block.h"
#include "kernels/cpu/matmul/gemm.h"
#include "kernels/kernel.h"

namespace ridgeline::cpu {

struct Product {
  std::string refusal;  // why this family cannot run the problem; empty if it can
  Gemm gemm;            // no pointers; with a constant B its batch strides count packed floats
  bool constant_b = false;
  int64_t b_matrices = 1;                          // of a constant B
  int64_t b_stride_k = 0, b_stride_n = 0;          // in its row-major source
  int bias = -1, residual = -1;                    // numbers of inputs
  std::shared_ptr<const PreparedProgram> program;  // the epilogue, if it is more than registers can do
  struct Further {                                 // an operand of the program
    int input;
    int64_t element_bytes, row, col;
    std::array<int64_t, kMaxBatchAxes> batch;
  };
  std::vector<Further> operands;

  bool in_place(int input) const;  // may C share this input's memory?
};

struct ProductTypes {
  DType a = DType::kF32, b = DType::kF32, y = DType::kF32;
  bool own_epilogue = false;  // the kernel runs the program: its operands are placed, nothing is read of it
};
/// `pack`: a constant B will be packed ahead. `types`: what the kernel takes; strides are in elements of them.
Product product_of(const Problem& problem, bool pack, const ProductTypes& types = {});

/// The program's operands at an element of C, by `Product::operands`.
void place_operands(const Product& product, const Buffers& buffers, int64_t batch, int64_t row, int64_t col,
                    TileInput* to);

/// The problem with all addresses; `context` must outlive its use.
struct ProductContext {
  const Product* product;
  const Buffers* buffers;
};
Gemm bind_product(const ProductContext& context);

}  // namespace ridgeline::cpu
