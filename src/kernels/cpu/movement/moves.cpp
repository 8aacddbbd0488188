#include "kernels/cpu/movement/moves.h"

#include <algorithm>

#include "kernels/cpu/movement/copy_tile.h"

namespace ridgeline::cpu {

Move make_move(const Extents& shape, const Extents& from_strides, const Extents& to_strides, int64_t from, int64_t to) {
  Move move;
  move.from = from;
  move.to = to;
  const Layout source(shape, from_strides), target(shape, to_strides);
  const Layout* const operands[] = {&source, &target};
  move.nest = make_loop_nest(shape, operands, 1);
  LoopNest& nest = move.nest;
  const int last = nest.axes() - 1;
  if (last < 1 || nest.strides[0][size_t(last)] == 1) return move;
  for (int a = 0; a < last - 1; ++a) {
    if (nest.strides[0][size_t(a)] != 1) continue;
    auto rotate = [&](std::vector<int64_t>& v) { std::rotate(v.begin() + a, v.begin() + a + 1, v.begin() + last); };
    rotate(nest.extents);
    for (auto& strides : nest.strides) rotate(strides);
    break;
  }
  return move;
}

void run_moves(const Moves& moves, const Buffers& buffers, const ThreadPool& pool, uint64_t constant) {
  const int bytes = moves.bytes;
  for (const Move& move : moves.list) {
    const void* source = move.input == Move::kFromConstant ? &constant
                         : move.input == Move::kFromOutput ? buffers.outputs[move.output]
                                                           : buffers.inputs[move.input];
    const char* from = static_cast<const char*>(source) + move.from * bytes;
    char* to = static_cast<char*>(buffers.outputs[move.output]) + move.to * bytes;
    const LoopNest& nest = move.nest;
    // 64 KiB take about 2 us; 16 rows are one block of a transpose.
    const int64_t grain = std::max<int64_t>((64 << 10) / bytes, 16 * nest.cols());
    nest.run(pool, nest.axes() == 1 ? (64 << 10) / bytes : grain,
             [&](const int64_t* offsets, int64_t rows, int64_t cols) {
               copy_tile(bytes, from + offsets[0] * bytes, nest.row_stride(0), nest.col_stride(0),
                         to + offsets[1] * bytes, nest.row_stride(1), nest.col_stride(1), rows, cols, moves.stream);
             });
  }
}

}  // namespace ridgeline::cpu
