// The steps of a product on the GPU in use, checked, then measured beside each other, the roof, and the library's own
// kernel.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/cuda/instructions.h"
#include "machine/ceilings.h"
#include "teach/cuda_matmul.h"
#include "tune/timing.h"

namespace ridgeline::teach {

struct CudaRow {
  std::string name, idea, file;  // file: "" for the library's kernel
  int64_t bytes = 0;             // CudaStep::bytes; of the library's kernel each operand once
  cuda::MatrixInstructions instructions;
  int registers = 0, blocks_per_sm = 0;  // by the compiler, and by the driver's count of what fits
  int64_t shared_bytes = 0;
  Samples samples;
  double tflop_s = 0;
  double roof_tflop_s = 0;  // the peak of what it multiplies with, in windows between its samples
  double card_tflop_s = 0;  // that of the tensor cores
  double gain = 1;          // over the step before: median of the rounds' ratios
  bool clear = true;        // three rounds of four agree on which is faster
  double roof_share() const { return roof_tflop_s > 0 ? tflop_s / roof_tflop_s : 0; }
  double card_share() const { return card_tflop_s > 0 ? tflop_s / card_tflop_s : 0; }
};

/// First every step and the library's kernel multiply small whole numbers, of which all sums are exact: a small product
/// is compared with sums made here, bit by bit, the whole one with the first step's. Then they are timed on normal
/// numbers, in rounds, forwards and backwards, for `seconds` in all and at least three: calls over rotated buffers in
/// one graph, by the device's clock. Throws std::logic_error if a result is wrong, or if a step that is to use the
/// tensor cores was compiled to code that has no instruction for them.
std::vector<CudaRow> climb_cuda(const CudaTask& task, const Ceilings& ceilings, double seconds, uint64_t seed,
                                const std::function<void(const std::string&)>& progress = {});

}  // namespace ridgeline::teach
