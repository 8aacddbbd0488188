// A convolution's input as rows of A.
#pragma once

#include <cstdint>

#include "kernels/cpu/matmul/gemm.h"

namespace ridgeline::cpu {

inline constexpr int64_t kMaxSegments = 128;

/// One tap, no stride, no padding, pixels evenly spaced: row m is pixel m.
bool is_plain_matrix(const Im2col& image);
/// Some tap of some output pixel lies outside the image.
bool needs_padding(const Im2col& image);
/// Pixels in a row of the padded copy, and its rows for a number of rows of the output.
int64_t padded_width(const Im2col& image);
int64_t padded_rows(const Im2col& image, int64_t out_rows);

/// Rows [row, row + rows) of A, columns [k, k + length), to dst (rows `pitch` floats apart).
void gather_rows(const Im2col& image, const float* data, int64_t row, int64_t rows, int64_t k, int64_t length,
                 float* dst, int64_t pitch);

/// The input rows under output rows [out_y, out_y + out_rows) of an image, padding included.
void copy_padded(const Im2col& image, const float* image_data, int64_t out_y, int64_t out_rows, int64_t pixel_pitch,
                 float* dst);

/// Where the segments of a tile start, relative to its first tap.
void segment_offsets(const Im2col& image, int64_t segments, int64_t pixel_pitch, int64_t row_pitch, int64_t* offsets);

}  // namespace ridgeline::cpu
