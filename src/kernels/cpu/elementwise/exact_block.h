// Programs over blocks in double and 64-bit integers: whatever the f32 interpreter does not take (f64, integer
// arithmetic, mixtures, f8). Results equal those of evaluate() with f32 rounded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ir/program.h"
#include "kernels/cpu/elementwise/program_block.h"

namespace ridgeline::cpu {

class ExactProgram {
 public:
  static constexpr int kMostOperands = 128;
  /// Why not (4-bit types, too many operands); empty if it can.
  static std::string reject(const Program& program);
  explicit ExactProgram(const Program& program);

  /// outputs = program(inputs) over rows x cols. `stream` is ignored.
  void run(int64_t rows, int64_t cols, const TileInput* inputs, const TileOutput* outputs) const;

 private:
  Program program_;
  std::vector<Program> single_;  // each instruction as a program of its own, for evaluate()
};

}  // namespace ridgeline::cpu
