// bench: every kernel that can run a problem, as a prepared step, beside the ceiling that bounds it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kernels/kernel.h"
#include "machine/roofline.h"
#include "tune/timing.h"

namespace ridgeline {

struct BenchRow {
  std::string name;
  bool rival = false;
  bool supported = false;
  std::string reason;  // why not supported, or not timed
  std::string layout;  // "channels last" where the kernel took that
  Samples samples;
  double ceiling = 0;  // Gop/s or GB/s, whichever bounds, measured between this row's samples
  double gop_s = 0, gb_s = 0, roof_share = 0;
  double burst_share = 0;  // of the machine's best window, where arithmetic bounds: the clock under load is lower
  bool chosen = false;
  bool timed() const { return samples.count() > 0; }
};

struct BenchResult {
  Cost cost;
  Floor floor;         // by the ceiling measured beside it
  double ceiling = 0;  // of the chosen row
  std::string ceiling_way;
  std::vector<BenchRow> rows;
};

struct BenchOptions {
  bool warm = false;
  double seconds = 1;  // a kernel
  std::string forced;  // time this kernel alone
  uint64_t seed = 1;
  bool rivals = false;  // other libraries beside the chosen kernel, rows from the fastest on
};

/// The layouts a kernel may be timed in: the one given, and before it channels last where the operator is one of images
/// whose layout is free (a convolution, a pool, a normalization of channels) and no layout was asked for. What a
/// movement costs is its layouts: those are never another.
std::vector<std::pair<std::string, Problem>> layouts_of(const Problem& problem);

/// Weights are packed before; inputs are normal random numbers; buffers rotate past the last cache unless warm.
BenchResult bench(const Problem& problem, const Ceilings& ceilings, const BenchOptions& options);

}  // namespace ridgeline
