// What the register kernels run (direct.h: channels last, planar.h: planes): one plain convolution in numbers, and its
// addresses.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/cpu/conv/geometry.h"

namespace ridgeline::cpu {

struct ConvShape {
  int64_t groups = 1, images = 0;
  int64_t height = 0, width = 0, channels = 0;  // channels of one group; groups lie next to each other
  ImageStrides x;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0;               // may be negative: the first tap lies within the image
  int64_t out_h = 0, out_w = 0, out_channels = 0;  // channels of one group
  ImageStrides y;
  bool has_residual = false;
  ImageStrides residual;
  int64_t taps() const { return kernel_h * kernel_w; }
  int64_t depth() const { return taps() * channels; }
  int64_t row_run() const { return kernel_w * channels; }
  int64_t pixels() const { return out_h * out_w; }
  /// A 1x1 convolution whose output pixels are its input's.
  bool keeps_pixels() const {
    return taps() == 1 && stride_h == 1 && stride_w == 1 && !pad_top && !pad_left && height == out_h && width == out_w;
  }
};

/// Output that is finished: pixels [ox, ox + pixels) of row (image, oy), channels [channel, channel + channels) counted
/// over all groups.
using FinishedRun = void (*)(const void* context, float* y, int64_t image, int64_t oy, int64_t ox, int64_t pixels,
                             int64_t channel, int64_t channels);

struct ConvBuffers {
  const float* x = nullptr;
  const float* weights = nullptr;  // as direct.h or planar.h wants them
  int64_t weight_row = 0;          // planar.h: floats from one row to the next
  const float* bias = nullptr;
  const float* residual = nullptr;
  float* y = nullptr;
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
  FinishedRun finished = nullptr;  // called once for each output
  const void* context = nullptr;
  void* workspace = nullptr;
};

}  // namespace ridgeline::cpu
