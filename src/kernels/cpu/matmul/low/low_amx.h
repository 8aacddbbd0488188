// LowBitMatMul with quantized activations on AMX: blocks of rows by panels, in pieces of k whose levels stay in the
// first cache while the rows pass by.
#pragma once

#include "kernels/cpu/matmul/low/low_tiles.h"
#include "kernels/cpu/matmul/low/low_weights.h"

namespace ridgeline::cpu {

/// Is it worth it, and can it be done?
bool low_amx_suits(const LowShape& shape);
/// Rows at a time, and what a thread works in (64-byte aligned): y first, [rows][32] of f32.
int64_t low_amx_rows(const LowShape& shape);
int64_t low_amx_bytes(const LowShape& shape);

struct LowAmxBlock {
  const int8_t* levels = nullptr;  // of the block's first row (a multiple of 16): [rows / 16][k / 64][16][64]
  const float *scale = nullptr, *weighted = nullptr;  // [rows][chunks], as low_quantize leaves them
  const int32_t* start = nullptr;
  int rows = 0;
  const uint8_t* w = nullptr;  // the panel
  LowScales scales;
  bool more = false;  // panels behind it
  char* own = nullptr;
};
/// Between low_groups_enter and leave of the shape's chunk.
void low_amx_panel(const LowShape& shape, const LowAmxBlock& block);

}  // namespace ridgeline::cpu
