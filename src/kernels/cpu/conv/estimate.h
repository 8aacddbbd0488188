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

}  // namespace ridgeline::cpu
