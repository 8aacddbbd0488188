// A product on a GPU, from three loops to the tensor cores' peak: which kernels there are, how they are launched, and
// what they ask of memory. The kernels are src/kernels/cuda/teach/*.cu, one idea a file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/cuda/compiler.h"
#include "kernels/cuda/device.h"
#include "ridgeline/dtype.h"

namespace ridgeline::teach {

/// C = A B, all row-major and of one type (bf16 or f16), sums in f32.
struct CudaProduct {
  int64_t m = 4096, n = 4096, k = 4096;
  DType dtype = DType::kBF16;
  int64_t flops() const { return 2 * m * n * k; }
  int64_t least_bytes() const { return 2 * (m * k + k * n + m * n); }  // each operand once
};

struct CudaStep {
  std::string name, idea;
  std::string file;  // to be read by the student
  cuda::Source source;
  int tile_rows = 0, tile_columns = 0;  // of a block
  bool rows_first = false;              // blocks count rows of tiles in x, not columns
  int threads = 0;
  bool tensor_cores = false;  // its roof is theirs, else that of multiply-adds in f32
  bool boxes = false;         // A and B come by bulk copies: its parameters are their descriptions
  /// What its warps ask of memory before any cache, in pieces of 32 bytes as the hardware moves them; the result, too.
  int64_t bytes = 0;

  cuda::Grid grid(const CudaProduct& p) const {
    const int64_t rows = p.m / tile_rows, columns = p.n / tile_columns;
    return rows_first ? cuda::Grid{rows, columns} : cuda::Grid{columns, rows};
  }
};

/// "m=4096 n=4096 k=4096 dtype=bf16 steps=naive,tiles" as far as given. Throws Error{kUsage} that lists the keys, for a
/// size of which tiles are no whole number, and for a step that there is not. `steps`: only these, in this order.
struct CudaTask {
  CudaProduct product;
  std::vector<CudaStep> steps;
  std::vector<std::string> left_out;  // with the reason: what the target has not
  std::string problem;                // as `bench` reads it
};
CudaTask cuda_matmul_task(const std::vector<std::string>& keys);

/// All of them, whatever the target is.
std::vector<CudaStep> cuda_matmul_steps(const CudaProduct& product);

}  // namespace ridgeline::teach
