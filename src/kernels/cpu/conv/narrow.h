// What the convolutions of narrow types (bf16, 8-bit integers) say alike: types, the epilogue's operands, zero points.
#pragma once

#include <vector>

#include "kernels/cpu/conv/geometry.h"
#include "kernels/cpu/matmul/dot/dot_epilogue.h"

namespace ridgeline::cpu {

/// An operand of the epilogue over the output's pixels and channels.
struct NarrowRider {
  DotRider kind = DotRider::kOther;
  ImageStrides strides;
  int input = 0;
  int64_t element = 0;
  bool wanted = true;
};
std::vector<NarrowRider> narrow_riders(const Problem& problem);
std::vector<DotRider> kinds_of(const std::vector<NarrowRider>& riders);
/// Only those that the epilogue reads while it runs are wanted from then on; none at all: false.
bool mark_wanted(std::vector<NarrowRider>& riders, const DotEpilogue& epilogue);
/// The addresses of those wanted at an element of y, rows of a block being pixels.
void place_riders(const std::vector<NarrowRider>& riders, const Buffers& buffers, int64_t image, int64_t channel,
                  int64_t oy, int64_t ox, TileInput* operands);

/// ConvInteger: sums in i32; else bf16 with sums in f32.
bool sums_integers(const Problem& problem);
/// Types, ranks, y's order, the epilogue; x may lie as it will.
Support supports_narrow(const Problem& problem);
/// y may take the place of a residual that lies as it does.
bool narrow_in_place(const Problem& problem, int input);
/// Number `at` of a zero point; 0 where there is none.
int32_t narrow_zero(const Problem& problem, const Buffers& buffers, int input, int64_t at);

}  // namespace ridgeline::cpu
