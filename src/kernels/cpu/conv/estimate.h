// Predicted time of a convolution: arithmetic at a measured share of the peak, or the bytes, whichever is longer.
#pragma once

#include <algorithm>

#include "kernels/cpu/conv/geometry.h"
#include "machine/ceilings.h"

namespace ridgeline::cpu {

/// `flops` executed (padded lanes counted), `efficiency` of the FMA peak, `extra_bytes` moved beside inputs and output.
inline double conv_estimate_ns(const Problem& problem, const Ceilings& ceilings, double flops, double efficiency,
                               int64_t extra_bytes = 0) {
  const double compute = ceilings.compute_ns(DType::kF32, int64_t(flops), problem.threads) / efficiency;
  const double stream = ceilings.stream_ns(problem.read_bytes() + extra_bytes / 2,
                                           problem.write_bytes() + extra_bytes / 2, problem.threads);
  return std::max(compute, stream) +
         (problem.threads > 1 ? ceilings.launch_ns.at(problem.threads, ceilings.cores) : 0.0);
}

/// The weights come from memory in each run, as in Winograd's estimate, and few pixels hide little of that. Without it
/// the direct kernel was taken for 7 to 14 pixels a side where Winograd is up to 1.9 times as fast (`ridgeline
/// regret`), and planar images for 7x7, where channels last are 1.6 times as fast.
inline double cold_weights_ns(const Problem& problem, const Ceilings& ceilings) {
  return 1.5 * ceilings.stream_ns(problem.input(1).bytes(), 0, problem.threads, MemoryLevel::kDram);
}

}  // namespace ridgeline::cpu
