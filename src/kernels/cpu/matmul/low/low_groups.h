// LowBitMatMul on AMX where a scale holds for a part of k alone: the integer sums of each chunk have to be scaled and
// added in f32.
//
// The tiles can be reached through memory only: 64 stores for 32 x 32 sums and as many loads, conversions and
// multiply-adds, beside 64 (chunks of 32 or 64) or 128 cycles (of 128) of products. So the sums of two chunks are
// converted while the products of the next two run, a few rows after each step, and are added to y together.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// Chunks that follow each other, for all rows of a block and a panel's 32 columns.
struct LowGroups {
  const int8_t* a = nullptr;  // [rows / 16][all k / 64][16][64], at the first chunk's k
  int64_t a_rows = 0;         // bytes from 16 rows to the next
  int64_t k = 0;              // of `a`, a multiple of 32: the first chunk's
  const int8_t* w = nullptr;  // signed levels [k / 4][32][4] of these chunks alone
  int rows = 0;
  int64_t chunks = 0, chunk = 0;  // how many; k of each, a multiple of 32
  const float* scale = nullptr;   // [chunks][32]
  const float* low = nullptr;     // alike; null: none
  /// Of row r and chunk c at [r * a_pitch + c]; null: a row has one scale, which is not applied here.
  const float *a_scale = nullptr, *a_weighted = nullptr;
  int64_t a_pitch = 0;
  bool first = false;                                  // y is set, else added to
  float* y = nullptr;                                  // [rows][32]
  int32_t* sums = nullptr;                             // 4 times [32][32], to work in
  const uint8_t *next = nullptr, *next_end = nullptr;  // fetched into the second cache meanwhile
  int64_t next_lines = 0;                              // with each chunk of 32 rows
};

void low_groups_enter(int64_t chunk);
void low_groups_leave();
void low_groups(const LowGroups& groups);

/// y[r][32], i32 (`integers`) or f32, to f32 in place: (y + start[r]) * scale * a_scale[r] - low * a_weighted[r]; only
/// by a_scale if `scale` is null. The arrays of rows are `a_pitch` apart.
struct LowRowScales {
  float* y = nullptr;
  int rows = 0;
  bool integers = false;
  const float *scale = nullptr, *low = nullptr;
  const float *a_scale = nullptr, *a_weighted = nullptr;
  const int32_t* start = nullptr;
  int64_t a_pitch = 0;
};
void low_scale_rows(const LowRowScales& rows);

}  // namespace ridgeline::cpu
