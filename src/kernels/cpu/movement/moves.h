// A movement operator as a list of strided copies, made once.
#pragma once

#include <vector>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/kernel.h"
#include "ops/moves.h"

namespace ridgeline::cpu {

/// Elements of one buffer to places of another. Offsets in elements.
struct Move {
  static constexpr int kFromOutput = StridedCopy::kFromOutput;
  static constexpr int kFromConstant = StridedCopy::kFromConstant;  // the `constant` of run_moves
  int input = 0, output = 0;
  int64_t from = 0, to = 0;
  LoopNest nest;  // operand 0: source, 1: target
};

struct Moves {
  std::vector<Move> list;  // one after the other; each is spread over the threads
  int bytes = 4;           // an element
  bool stream = false;
};

/// A move over `shape` between strides in elements. Axes of equal direction are merged; a transpose gets the source's
/// contiguous axis next to the target's.
Move make_move(const Extents& shape, const Extents& from_strides, const Extents& to_strides, int64_t from = 0,
               int64_t to = 0);

/// `constant`: the bits of one element.
void run_moves(const Moves& moves, const Buffers& buffers, const ThreadPool& pool, uint64_t constant = 0);

}  // namespace ridgeline::cpu
