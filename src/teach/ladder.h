// The teaching ladder: the steps of a product or a convolution, measured beside each other, the roof, and the library's
// own kernel.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tune/timing.h"

namespace ridgeline::teach {

/// One way to compute the task, on buffers that it holds.
struct Way {
  std::string name, idea, file;  // file: to be read by the student; "" for the library's kernel
  int threads = 1;
  int64_t bytes = 0;  // that pass between the second-level cache and what lies behind it, by the order of its loops
  std::function<void()> run;
  std::function<void()> poison;            // fills the result with NaN
  std::function<double()> furthest_value;  // from the first way's result, by its largest value
};

struct Task {
  std::string problem;  // as `bench` reads it
  int64_t flops = 0;
  std::vector<Way> ways;  // the steps, then the library's kernel on one thread, and on all if that is another
  int steps = 0;
};

/// Throws Error{kUsage} that lists the keys. `l2`: bytes of the second-level cache.
Task matmul_task(const std::vector<std::string>& keys, int threads, int64_t l2, uint64_t seed);
Task conv_task(const std::vector<std::string>& keys, int threads, int64_t l2, uint64_t seed);

struct Row {
  const Way* way;
  Samples samples;
  double gop_s = 0;
  double roof_gop_s = 0;  // the peak of its threads, in windows between its samples
  double gain = 1;        // over the way before it: median of the rounds' ratios
  bool clear = true;      // the rounds agree on which of both is faster (3 of 4 and more)
  double roof_share() const { return roof_gop_s > 0 ? gop_s / roof_gop_s : 0; }
};

/// Runs all ways in rounds, forwards then backwards, for `seconds` in all and at least three rounds; checks each result
/// against the first way's and throws std::logic_error if one is wrong.
std::vector<Row> climb(const Task& task, double seconds, const std::function<void(int round)>& progress = {});

}  // namespace ridgeline::teach
