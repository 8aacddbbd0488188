// The inner loops of everything that moves elements: a tile of rows x cols from one pair of strides to another.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// dst[i * dst_row + j * dst_col] = src[i * src_row + j * src_col], strides in elements of `bytes` (1, 2, 4 or 8) each,
/// any strides (0 and negative ones in src too). Contiguous rows are copied as such; where src is contiguous along the
/// rows and dst along the columns, blocks are transposed in registers. `stream`: stores past the caches where whole
/// lines are written.
void copy_tile(int bytes, const void* src, int64_t src_row, int64_t src_col, void* dst, int64_t dst_row,
               int64_t dst_col, int64_t rows, int64_t cols, bool stream);

/// n elements of `bytes` each become the element at `value`; contiguous.
void fill_elements(int bytes, const void* value, void* dst, int64_t n);

}  // namespace ridgeline::cpu
