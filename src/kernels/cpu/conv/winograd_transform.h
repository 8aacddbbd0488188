// Transforms of the fast convolution by minimal filtering (Winograd 1980; Lavin and Gray 2015), channels last.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// Output tile of m_h x m_w pixels from (m_h + 2) x (m_w + 2) products; m is 2 or 4.
struct WinogradInput {
  const float* x;  // the image
  int64_t row, pixel;
  int64_t height, width;
  int64_t top, left;  // of the tile's patch within the image; may be outside
  int64_t channels;
  float* v;  // [product][channels in whole vectors], products v_step apart
  int64_t v_step;
};
using WinogradInputTransform = void (*)(const WinogradInput&);

struct WinogradOutput {
  const float* m;  // [product][channels in whole vectors], products m_step apart
  int64_t m_step;
  float* y;  // the tile's first pixel
  int64_t row, pixel;
  int64_t rows, columns;  // written
  int64_t channels;
  const float* bias;
  const float* residual;
  int64_t residual_row, residual_pixel;
  float low, high;
};
using WinogradOutputTransform = void (*)(const WinogradOutput&);

/// Nothing for other sizes than 4x4, 4x2 and 2x2.
WinogradInputTransform winograd_input(int m_h, int m_w);
WinogradOutputTransform winograd_output(int m_h, int m_w);

/// u[m + 2][m + 2] = G w Gt of one 3x3 filter, in double.
void winograd_weight(int m_h, int m_w, const float* w, double* u);

/// Along one axis, at output `row` of m: the standard deviation of what is summed for it, over that of the direct sum's
/// three products, for independent operands of variance 1. Rounding errors are proportional to what is rounded.
double winograd_amplification(int m, int row);

}  // namespace ridgeline::cpu
