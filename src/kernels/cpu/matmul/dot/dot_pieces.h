// The AMX tiles over a piece of k: the sums of earlier pieces go on, so that a piece of B can stay in the first cache
// while all rows pass by.
//
// Cycles for a step (64 bytes of k, 32 x 32 sums, four products of 16 cycles each): 64 with all four operands in the
// first cache or half of them, 86 with all from the second (64 bytes a cycle are wanted, 48 come). So B's piece stays
// (kDotPieceBlocks = 16 steps, 32 KiB of 48) and A comes by tile loads with a hint not to keep it: without the hint A
// drives B out again (42 ns a step instead of 31), with pieces of 8 steps loading and storing sums takes what is won.
#pragma once

#include <cstdint>

#include "machine/probe.h"

namespace ridgeline::cpu {

inline constexpr int64_t kDotPieceBlocks = 16;  // at most, if more than one tile's rows use a piece

struct DotPiece {
  const uint8_t* a = nullptr;        // [rows / 16][all blocks][16][64], or:
  const int64_t* offsets = nullptr;  // of each block of this piece from `a`
  int64_t a_pitch = 64;              // bytes from row to row of a block
  int64_t a_rows = 0;                // bytes from 16 rows to the next
  bool keep_a = false;               // A's rows stay in the first cache and B passes by, not the other way round
  const uint8_t* b = nullptr;        // of a panel
  int64_t blocks = 0;                // of this piece
  int rows = 0;                      // at most 32; above 16 two tiles' rows are worked on
  const void* from = nullptr;        // sums of the pieces before, [rows][32]; null: none
  void* to = nullptr;                // may be the same
  /// What is fetched meanwhile, a little at each step: many at once take the buffers through which the second cache
  /// answers, too, and the tiles wait (1024 cubed in bf16: 3.1 ms so, 2.1 spread, none 2.4).
  const uint8_t *next = nullptr, *next_end = nullptr;  // into the second cache
  int next_lines = 0;                                  // a step
  const uint8_t* y = nullptr;                          // rows about to be written; null: none
  int64_t y_row = 0;                                   // bytes
  int y_row_bytes = 0;                                 // of them written
};

enum class DotPieceType : uint8_t { kU8S8, kS8U8, kBf16 };  // A, then B
using DotPieceKernel = void (*)(const DotPiece& piece);
/// Null where there is no AMX, or RIDGELINE_ISA forbids it.
DotPieceKernel dot_piece_kernel(DotPieceType type);
DotPieceKernel dot_piece_kernel(DotPieceType type, const Cpu& cpu);  // of another processor than this one: for tests
/// On each thread before its first piece and after its last.
void dot_pieces_enter();
void dot_pieces_leave();

}  // namespace ridgeline::cpu
