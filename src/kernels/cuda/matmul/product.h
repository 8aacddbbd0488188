// A product of matrices as kernels see it: vectors get their axis, batch axes that can be rows become rows, and what
// follows the sums (Gemm's alpha and C, the problem's program) is one program over operands with strides.
#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/compiler.h"
#include "kernels/kernel.h"

namespace ridgeline::cuda {

/// How an operand is walked along rows and columns of the result (A: rows and k, B: k and columns) and along the batch
/// axes, in elements.
struct Walk {
  int64_t row = 0, column = 0;
  std::vector<int64_t> batch;
};

struct Product {
  std::string refusal;  // why this family cannot run the problem; empty: it can
  int64_t m = 1, n = 1, k = 1;
  std::vector<int64_t> batch;  // extents, outermost first
  Walk a, b, y;
  int b_input = 1;                           // its number: QLinearMatMul has the scale of A in between
  Walk a_zero, b_zero;                       // of integers: one for all, or one a row or column
  int a_zero_input = -1, b_zero_input = -1;  // -1: there is none
  Problem tail;               // what epilogue_source is asked with: a result [m, n] and the epilogue's operands
  std::vector<Walk> further;  // of those operands
  std::vector<int> inputs;    // their numbers in the problem

  int64_t batches() const;
};

constexpr int kBatchAxes = 6;  // that kernels walk (matmul/arguments.cu)

/// `packed_b`: B is constant and will lie as [matrices, n, k rounded up to `unit`]: b's walk is that, and b's last two
/// axes are as if transposed.
struct PackedB {
  bool packed = false;
  int64_t unit = 1;
};
Product product_of(const Problem& problem, const PackedB& pack = {});

/// B, packed: how many elements a row has, how many matrices there are, and the work itself. Rows are filled up with
/// zeros.
int64_t packed_row(const Product& product, const PackedB& pack);
Packing packing_of(const Problem& problem, const PackedB& pack);
void pack_b(const Problem& problem, const PackedB& pack, const Tensor& source, void* packed);

/// The types and structures that kernels of this family are compiled with: `AType`, `BType`, the epilogue, and
/// `struct Arguments` (matmul/arguments.cu).
std::string product_source(const Problem& problem, const Product& product);
/// The bytes of `struct Arguments`.
std::vector<uint64_t> argument_words(const Product& product, const Buffers& buffers);

}  // namespace ridgeline::cuda
