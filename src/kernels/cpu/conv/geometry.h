// What a problem of Conv or ConvTranspose says, in numbers: extents, pads (auto_pad resolved) and strides of both
// images.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/problem.h"
#include "kernels/kernel.h"

namespace ridgeline::cpu {

enum class ImageOrder { kChannelsLast, kPlanar };

/// Distances in floats between neighbours along each axis of [N,C,H,W].
struct ImageStrides {
  int64_t image = 0, channel = 0, row = 0, pixel = 0;
  bool operator==(const ImageStrides&) const = default;
};

/// 1-D ([N,C,L]) is 2-D with a height of 1.
struct ConvGeometry {
  bool transposed = false;
  int64_t images = 0, groups = 1;
  int64_t in_channels = 0, out_channels = 0;  // of all groups
  int64_t in_h = 1, in_w = 1, out_h = 1, out_w = 1;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t pad_top = 0, pad_left = 0;  // what lies below and right follows from the output's extents

  int64_t group_in() const { return in_channels / groups; }
  int64_t group_out() const { return out_channels / groups; }
  int64_t taps() const { return kernel_h * kernel_w; }
  bool pointwise() const { return taps() == 1; }
  /// Multiply-adds times two, taps in the padding counted.
  double flops() const;
};

/// Extents and attributes; x has rank 3 or 4 (see `supports_conv`). `weights`: which input they are.
ConvGeometry conv_geometry(const Problem& problem, int weights = 1);

/// What all kernels of this family ask first: f32, rank 3 or 4, no empty reduction.
Support supports_conv(const Problem& problem);

/// The strides of an image that lies in this order, else nothing; extents of 1 have no say. Channels last: the channels
/// are contiguous, rows and pixels wherever they are. Planar: each channel's plane is contiguous, row by row.
std::optional<ImageStrides> image_strides(const Layout& layout, ImageOrder order);

/// Strides of an operand that is broadcast to `shape` (0 along broadcast axes); nothing if it does not broadcast.
std::optional<ImageStrides> broadcast_strides(const Layout& operand, const Extents& shape);

}  // namespace ridgeline::cpu
