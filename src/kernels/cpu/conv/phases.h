// A transposed convolution of stride s is s (or fewer) plain convolutions of stride 1 along each axis: the outputs of
// one residue modulo s see one subset of the taps. Each output is then computed once, in registers, with its epilogue;
// the textbook way (a product, then a sum of overlapping patches) writes every partial sum to memory.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/conv/geometry.h"

namespace ridgeline::cpu {

/// The outputs first, first + stride, ... of one axis.
struct AxisPhase {
  int64_t first = 0, count = 0;
  int64_t taps = 0;                           // of the plain convolution; at least 1
  bool empty = false;                         // no tap of the kernel reaches these outputs: the one tap is zero
  int64_t kernel_first = 0, kernel_step = 0;  // its tap j is the kernel's tap kernel_first + j * kernel_step
  int64_t dilation = 1, pad = 0;
};
std::vector<AxisPhase> axis_phases(int64_t out, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad);

}  // namespace ridgeline::cpu
