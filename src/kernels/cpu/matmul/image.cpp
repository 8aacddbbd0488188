#include "kernels/cpu/matmul/image.h"

#include <algorithm>
#include <cstring>

namespace ridgeline::cpu {
namespace {

void copy(float* dst, const float* src, int64_t floats) { std::memcpy(dst, src, size_t(floats) * sizeof(float)); }
void zero(float* dst, int64_t floats) { std::memset(dst, 0, size_t(floats) * sizeof(float)); }

}  // namespace

bool is_plain_matrix(const Im2col& image) {
  return image.kernel_h == 1 && image.kernel_w == 1 && image.stride_h == 1 && image.stride_w == 1 &&
         image.pad_top == 0 && image.pad_left == 0 && image.out_h == image.height && image.out_w == image.width &&
         image.row_stride == image.width * image.pixel_stride && image.image_stride == image.height * image.row_stride;
}

bool needs_padding(const Im2col& image) {
  return image.pad_top > 0 || image.pad_left > 0 ||
         (image.out_h - 1) * image.stride_h + (image.kernel_h - 1) * image.dilation_h >= image.height ||
         (image.out_w - 1) * image.stride_w + (image.kernel_w - 1) * image.dilation_w >= image.width;
}

int64_t padded_width(const Im2col& image) {
  return (image.out_w - 1) * image.stride_w + (image.kernel_w - 1) * image.dilation_w + 1;
}

int64_t padded_rows(const Im2col& image, int64_t out_rows) {
  return (out_rows - 1) * image.stride_h + (image.kernel_h - 1) * image.dilation_h + 1;
}

void gather_rows(const Im2col& image, const float* data, int64_t row, int64_t rows, int64_t k, int64_t length,
                 float* dst, int64_t pitch) {
  // Taps of a kernel row that touch are one run.
  const bool merged = image.dilation_w == 1 && image.pixel_stride == image.channels;
  const int64_t runs_w = merged ? 1 : image.kernel_w, taps = merged ? image.kernel_w : 1, run = taps * image.channels;
  const int64_t pixels = image.out_h * image.out_w;
  for (int64_t r = row; r < row + rows; ++r, dst += pitch) {
    const float* source = data + r / pixels * image.image_stride;
    const int64_t y0 = r % pixels / image.out_w * image.stride_h - image.pad_top;
    const int64_t x0 = r % image.out_w * image.stride_w - image.pad_left;
    for (int64_t at = k; at < k + length;) {
      const int64_t index = at / run, from = at - index * run, to = std::min(run, from + k + length - at);
      const int64_t y = y0 + index / runs_w * image.dilation_h, x = x0 + index % runs_w * image.dilation_w;
      float* out = dst + (at - k);
      // The run's floats [low, high) lie in the image.
      int64_t low = std::clamp<int64_t>(-x, 0, taps) * image.channels;
      int64_t high = std::clamp<int64_t>(image.width - x, 0, taps) * image.channels;
      if (y < 0 || y >= image.height) high = 0;
      low = std::clamp(low, from, to);
      high = std::clamp(high, low, to);
      if (low > from) zero(out, low - from);
      if (high > low)
        copy(out + (low - from), source + y * image.row_stride + x * image.pixel_stride + low, high - low);
      if (to > high) zero(out + (high - from), to - high);
      at += to - from;
    }
  }
}

void copy_padded(const Im2col& image, const float* image_data, int64_t out_y, int64_t out_rows, int64_t pixel_pitch,
                 float* dst) {
  const int64_t width = padded_width(image), rows = padded_rows(image, out_rows);
  const int64_t left = std::min(image.pad_left, width),
                end = std::min(width, left + image.width);  // [left, end) is image
  const bool dense = pixel_pitch == image.channels && image.pixel_stride == image.channels;
  for (int64_t r = 0; r < rows; ++r, dst += width * pixel_pitch) {
    const int64_t y = out_y * image.stride_h - image.pad_top + r;
    if (y < 0 || y >= image.height) {
      zero(dst, width * pixel_pitch);
      continue;
    }
    const float* source = image_data + y * image.row_stride;
    zero(dst, left * pixel_pitch);
    if (dense) {
      copy(dst + left * pixel_pitch, source, (end - left) * pixel_pitch);
    } else {
      for (int64_t x = left; x < end; ++x)
        copy(dst + x * pixel_pitch, source + (x - left) * image.pixel_stride, image.channels);
    }
    zero(dst + end * pixel_pitch, (width - end) * pixel_pitch);
  }
}

void segment_offsets(const Im2col& image, int64_t segments, int64_t pixel_pitch, int64_t row_pitch, int64_t* offsets) {
  const int64_t per_row = segments / image.kernel_h;
  for (int64_t s = 0; s < segments; ++s)
    offsets[s] = s / per_row * image.dilation_h * row_pitch + s % per_row * image.dilation_w * pixel_pitch;
}

}  // namespace ridgeline::cpu
