// How the kernels for few rows divide a problem, and what they measured: rows.cu, few.cu and many.cu.
#pragma once

#include "kernels/cuda/matvec/rows_shape.h"

namespace ridgeline::cuda {

/// rows.cu runs at any level, few.cu (up to 8 rows) and many.cu (more) from sm_90.
enum class Path : uint8_t { kRows, kFew, kMany };

/// What a block does. tile.size is
///   rows.cu  {tiles of 16 n, warps that share out k, steps of 64 k in flight}
///   few.cu   {tiles of 16 n, warps that share out k, copies of 2 KB in flight, when the next launch may start: 1 at
///            once, 2 when all weights are under way}
///   many.cu  {tiles of 16 n of a warp, warps, copies of 2 KB in flight, blocks that share out k, chunks of 256 of x}
struct Blocking {
  Path path = Path::kRows;
  int nt = 1, warps = 8, depth = 2, cluster = 1, x_stages = 2;
  bool early = false;
  int mt = 1, x_rows = 1, x_chunk = 256, buffers = 2;       // follow from the rows
  int64_t room_groups = 1, scale_room = 0, warp_bytes = 0;  // few.cu and many.cu
  int64_t shared_bytes = 0;
  int64_t tiles() const { return int64_t(nt) * (path == Path::kMany ? warps : 1); }  // of a block
};

/// The instruction's type is f16 where both sides are exact in it; else bf16, and what has more bits comes in parts.
bool in_f16(const RowsShape& shape);
int x_parts(const RowsShape& shape);
int w_parts(const RowsShape& shape);
int x_bytes(const RowsShape& shape);

Blocking blocking(const Problem& problem, const RowsShape& shape, const Tile& tile, Path path);
Tile best_tile(const RowsShape& shape, Path path);
std::vector<Tile> further_tiles(const Problem& problem, const RowsShape& shape, Path path);
TileCheck check_blocking(const Problem& problem, const RowsShape& shape, const Tile& tile, Path path);
/// ns, by what was measured on an H200.
double blocking_ns(const Problem& problem, const RowsShape& shape, const Tile& tile, Path path, const Ceilings& c);

}  // namespace ridgeline::cuda
