#include "kernels/cpu/conv/phases.h"

#include <numeric>

namespace ridgeline::cpu {

// Output o gets input i through tap k where o + pad = i * stride + k * dilation. For one residue of o + pad the taps k
// are an arithmetic progression (those with k * dilation of that residue), and i falls as k grows: the plain
// convolution walks the taps backwards.
std::vector<AxisPhase> axis_phases(int64_t out, int64_t kernel, int64_t stride, int64_t dilation, int64_t pad) {
  std::vector<AxisPhase> phases;
  const int64_t common = std::gcd(stride, dilation);
  for (int64_t first = 0; first < stride && first < out; ++first) {
    AxisPhase phase;
    phase.first = first;
    phase.count = (out - first + stride - 1) / stride;
    const int64_t residue = ((first + pad) % stride + stride) % stride;
    int64_t tap = 0;
    while (tap < kernel && tap * dilation % stride != residue) ++tap;
    if (tap >= kernel) {
      phase.taps = 1, phase.empty = true;
    } else {
      const int64_t step = stride / common;
      phase.taps = (kernel - 1 - tap) / step + 1;
      phase.kernel_first = tap + (phase.taps - 1) * step, phase.kernel_step = -step;
      phase.dilation = dilation / common;
      const int64_t input = (first + pad - tap * dilation) / stride;  // exact: seen by the phase's first output
      phase.pad = (phase.taps - 1) * phase.dilation - input;
    }
    phases.push_back(phase);
  }
  return phases;
}

}  // namespace ridgeline::cpu
