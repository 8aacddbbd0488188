// Problems in the words of `bench` and `cost`: "matmul m=1 n=4096 k=4096 dtype=f16", "conv n=1 c=64 ...", "relu
// shape=4096x4096", or any operator by its schema's name and the generic form of Problem::text.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/problem.h"
#include "tune/bench.h"

namespace ridgeline {

struct BenchProblem {
  Problem problem;
  std::string words;         // as given
  bool warm = false;         // buffers are not rotated
  std::string forced;        // kernel=NAME
  std::optional<Tile> tile;  // tile=AxBxC
};

/// Throws Error{kUsage} that lists the keys.
BenchProblem parse_bench_problem(const std::string& op, const std::vector<std::string>& keys, int threads,
                                 DeviceKind device = DeviceKind::kCpu);

/// The inverse: a line that can be pasted behind `bench`.
std::string problem_words(const Problem& problem);

}  // namespace ridgeline
