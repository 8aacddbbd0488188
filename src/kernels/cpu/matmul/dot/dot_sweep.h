// A thread's rows of A past panels of B on the AMX tiles: of a product, whose rows were packed, and of a convolution,
// whose rows are output pixels.
//
// Panels outside, rows inside: a piece of B stays in the first cache, A comes from the second, and each panel of
// weights is read once. Rows outside (`rows_first`): 32 rows of A stay in the first cache, all of B comes from the
// second for each 32 rows, and whole rows of y are written one after another instead of 64 bytes in each.
#pragma once

#include <cstdint>

#include "kernels/cpu/matmul/dot/dot_pieces.h"

namespace ridgeline::cpu {

inline constexpr int kDotSweepRows = 32;  // of a tile

struct DotSweep {
  DotPieceKernel kernel = nullptr;
  const uint8_t* a = nullptr;
  int64_t rows = 0, row_bytes = 0;   // from a row to the next, counted in whole tiles of 16
  int64_t pitch = 64;                // within a tile
  const int64_t* offsets = nullptr;  // of each block; null: 1024 bytes apart
  /// From this row on (a multiple of 32) rows are read at `rest`, `rest_pitch` apart.
  int64_t direct_rows = INT64_MAX, rest_pitch = 0;
  const uint8_t* rest = nullptr;

  const uint8_t* panels = nullptr;
  int64_t blocks = 0, panel_bytes = 0, first = 0, last = 0;
  bool again = false;  // the first panel is wanted again for rows to come
  bool rows_first = false;

  char* keep = nullptr;  // dot_sweep_keep_bytes
  char* sums = nullptr;  // of a tile, 4 KiB

  /// Where the first row's first column is stored, to be fetched ahead; null: not wanted.
  const uint8_t* y = nullptr;
  int64_t y_row = 0, y_row_bytes = 0;  // bytes to the next row; of all columns
  int y_panel = 0;                     // bytes of a panel's columns

  void (*finish)(const void* context, int64_t row, int rows, int64_t panel, void* sums) = nullptr;
  const void* context = nullptr;
};

/// Sums of all rows between pieces of k.
int64_t dot_sweep_keep_bytes(int64_t rows, int64_t blocks, bool rows_first);
/// Between dot_pieces_enter and dot_pieces_leave.
void dot_sweep(const DotSweep& sweep);

}  // namespace ridgeline::cpu
