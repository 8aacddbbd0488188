// An epilogue as a pass over the finished output, in place: for kernels whose output is small beside their work, or is
// still in cache. Contractions apply theirs tile by tile instead (program_block.h).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/elementwise/program_block.h"
#include "kernels/kernel.h"

namespace ridgeline::cpu {

class EpiloguePass {
 public:
  /// Yes if there is no epilogue, or one that runs in f32 on an f32 output.
  static Support check(const Problem& problem);
  explicit EpiloguePass(const Problem& problem);
  void run(const Buffers& buffers, const ThreadPool& pool) const;

 private:
  std::optional<PreparedProgram> program_;
  LoopNest nest_;  // operands: output 0, then the epilogue's
  std::vector<int> bytes_;
  int first_ = 0;  // the epilogue's first operand among the problem's inputs
};

}  // namespace ridgeline::cpu
