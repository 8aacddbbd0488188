// The vector code of softmax and of the norms: one row, or many lanes side by side. f32.
#pragma once

#include <cstdint>

namespace ridgeline::cpu {

/// y = softmax(x), or its logarithm, over n contiguous numbers; y may be x, but for a stream. `ahead`, `stream` as
/// below.
void softmax_row(const float* x, float* y, int64_t n, bool logarithm, int64_t ahead = 0, bool stream = false);

/// The same along a strided axis for `lanes` neighbouring (contiguous) lanes: element k of lane j is x[k * x_step + j].
void softmax_lanes(const float* x, int64_t x_step, float* y, int64_t y_step, int64_t extent, int64_t lanes,
                   bool logarithm);

/// One row of a norm: s = x (+ residual), y = (s - mean) / sqrt(variance + epsilon) * scale + bias; without `centered`
/// the mean is 0. All of n contiguous numbers; scale and bias are n numbers, or one (its stride 0).
struct NormRow {
  int64_t n = 0;
  float epsilon = 0;
  bool centered = true;
  const float *x = nullptr, *residual = nullptr, *scale = nullptr, *bias = nullptr;
  int64_t scale_stride = 1, bias_stride = 1;
  float* y = nullptr;
  float* sum = nullptr;                       // where s is kept (needed if there is a residual); may be y
  float *mean = nullptr, *inverse = nullptr;  // one number each, if wanted
  int64_t ahead = 0;    // elements from x to the row that is asked for while this one is written; 0: none
  bool stream = false;  // y past the caches, where it is whole lines
};
void norm_row(const NormRow& row);

/// Rows written past the caches are seen by others after this: before another thread is told.
void flush_rows();

/// Mean and variance (sum of squared differences over n) of n contiguous numbers, in two passes.
void moments(const float* x, int64_t n, float* mean, float* variance);

}  // namespace ridgeline::cpu
