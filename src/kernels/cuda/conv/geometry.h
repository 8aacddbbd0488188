// What a problem of the convolution family says, in numbers: three spatial axes, of which missing ones have an extent
// of 1.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "ir/problem.h"
#include "kernels/kernel.h"

namespace ridgeline::cuda {

/// Along images, channels and the three spatial axes (the last is innermost); in elements.
using ImageStrides = std::array<int64_t, 5>;

struct ConvGeometry {
  bool transposed = false;
  int64_t images = 0, groups = 1;
  int64_t in_channels = 0, out_channels = 0;  // of all groups
  std::array<int64_t, 3> in{1, 1, 1}, out{1, 1, 1}, kernel{1, 1, 1}, stride{1, 1, 1}, dilation{1, 1, 1};
  std::array<int64_t, 3> begin{};  // padding before; what lies behind follows from the output's extents

  int64_t group_in() const { return in_channels / groups; }
  int64_t group_out() const { return out_channels / groups; }
  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t in_pixels() const { return in[0] * in[1] * in[2]; }
  int64_t out_pixels() const { return out[0] * out[1] * out[2]; }
  /// Multiply-adds times two, taps in the padding counted.
  double flops() const;
};

/// Which input the weights are: 3 for QLinearConv.
int weights_of(const Problem& problem);

/// Of Conv, ConvTranspose, ConvInteger and QLinearConv, with at most three spatial axes.
ConvGeometry conv_geometry(const Problem& problem);

/// Strides of an operand [N, C, spatial...] or [M, C, taps...].
ImageStrides image_strides(const Layout& layout);

/// The channels follow each other, the pixels follow as in memory without gaps, rows and images too: [pixels, channels]
/// is a matrix with rows of exactly that many elements. Extents of 1 have no say.
bool is_pixel_matrix(const Layout& layout);

}  // namespace ridgeline::cuda
