// Copies of A and B into the forms that the tiles read.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// dst[t * panel_width() + j] = scale * b[t * stride_k + j * stride_n] for t < k, j < cols; columns from `cols` to the
/// panel's width become zero.
void pack_panel(const float* b, int64_t stride_k, int64_t stride_n, int64_t k, int64_t cols, float* dst, float scale);

/// dst[r * dst_row + t] = a[r * row_stride + t * k_stride].
void pack_rows(const float* a, int64_t row_stride, int64_t k_stride, int64_t rows, int64_t k, float* dst,
               int64_t dst_row);

}  // namespace ridgeline::cpu
