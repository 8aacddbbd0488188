// The epilogue of a convolution: the frequent ones (bias, residual, clamp) are done in registers, other programs on
// finished rows while they are in cache. And what all kernels of the family say with it.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "kernels/cpu/conv/shape.h"
#include "kernels/cpu/elementwise/program_block.h"

namespace ridgeline::cpu {

struct ConvEpilogue {
  /// Numbers of inputs of the problem; -1: none. `bias` is one value a channel, contiguous.
  int bias = -1;
  int residual = -1;  // laid out with contiguous channels (or planes): `residual_strides`
  ImageStrides residual_strides;
  float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();

  /// Everything after the operator's own bias, if it is none of the above.
  std::shared_ptr<const PreparedProgram> program;
  struct Further {
    int input;
    int64_t element_bytes;
    ImageStrides strides;
  };
  std::vector<Further> operands;  // of the program, in its order
};

inline constexpr int kMostEpilogueOperands = 16;

/// Why the epilogue cannot be done; ok without one.
Support supports_epilogue(const Problem& problem);
/// `with_residual` false: a residual is left to the program.
ConvEpilogue conv_epilogue(const Problem& problem, ImageOrder order, bool with_residual = true);

/// Applies `epilogue.program` to a run of finished output: pixels [ox, ox + pixels) of row (image, oy), channels
/// [channel, channel + channels). `y` is the first element; y_pixel and y_channel its strides.
/// ox_step: columns of the output from one pixel of the run to the next.
void apply_program(const ConvEpilogue& epilogue, const Buffers& buffers, float* y, int64_t y_pixel, int64_t y_channel,
                   int64_t image, int64_t channel, int64_t oy, int64_t ox, int64_t pixels, int64_t channels,
                   int64_t ox_step = 1);

/// What most kernels of the family ask: types, ranks, the order of both images, the epilogue.
Support supports_images(const Problem& problem, ImageOrder order);
template <ImageOrder kOrder>
Support supports_images(const Problem& problem) {
  return supports_images(problem, kOrder);
}

/// The output may take the place of a residual that lies as it does.
bool residual_in_place(const Problem& problem, int input, ImageOrder order);
template <ImageOrder kOrder>
bool residual_in_place(const Problem& problem, int input) {
  return residual_in_place(problem, input, kOrder);
}

/// A Conv as the register kernels run it.
ConvShape conv_shape(const Problem& problem, const ConvEpilogue& epilogue, ImageOrder order);

/// The addresses of a run, but for the weights and the workspace. `rest` has to outlive them: what is left of the
/// epilogue is applied with it to runs of output whose rows and columns are first + i * step of the whole output's.
struct RestOfEpilogue {
  const ConvEpilogue* epilogue;
  const Buffers* buffers;
  int64_t y_pixel, y_channel;
  int64_t first_row = 0, row_step = 1, first_column = 0, column_step = 1;
};
ConvBuffers conv_buffers(const RestOfEpilogue& rest);

}  // namespace ridgeline::cpu
