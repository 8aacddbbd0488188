// What a described machine would do with a problem: bound, floor, tiles that fit, and the class of kernel that would be
// chosen. A model of time, of nothing but the description (docs/machines.md has its formulas).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "machine/roofline.h"
#include "machine/tile_fit.h"
#include "plan/plan.h"

namespace ridgeline {

/// One way to run it; all are kept, with the reason of those that cannot.
struct KernelClass {
  std::string name;    // matrix.tile, matrix.split_k, vector.stream, vector.tile, vector.row, vector.two_pass, ...
  std::string reason;  // why not; "": it can
  double time_us = 0, compute_us = 0, memory_us = 0;
  std::optional<TileFit> tile;
  int64_t split = 1;
  bool possible() const { return reason.empty(); }
};

struct DescribedAnswer {
  Cost cost;
  std::string words;
  Bound bound = Bound::kMemory;
  double floor_us = 0, compute_us = 0, memory_us = 0;
  double ridge = 0;  // FLOP/byte: the peak below over the last level's bandwidth
  double peak_gop_s = 0;
  DType computed_in = DType::kNone;  // wider than the operands where no unit has their type
  std::string unit, level;
  std::vector<KernelClass> classes;
  int chosen = 0;
  // Products alone.
  std::optional<TileShape> product;  // m, n, k; `batch` of them
  int64_t batch = 1;
  std::vector<TileFit> tiles;    // all that fit, the best first by the model
  std::optional<TileFit> asked;  // tile=
  const KernelClass& winner() const { return classes[size_t(chosen)]; }
};

/// `cold`: every byte comes from the last level, as in a benchmark that rotates its buffers. Throws Error{kUsage} for a
/// tile that does not fit, with the bytes it is over, and for a type that no unit computes.
DescribedAnswer answer_for(const Problem& problem, const DescribedMachine& machine, bool cold,
                           const std::optional<TileShape>& tile = std::nullopt);

/// The words of `cost` and `bench`, among them tile=; matmul also in i8 and u8 (MatMulInteger).
DescribedAnswer answer_for_words(const std::string& op, std::vector<std::string> keys, const DescribedMachine& machine,
                                 bool benchmark);

nlohmann::ordered_json answer_json(const DescribedAnswer& answer, const DescribedMachine& machine);
std::string answer_text(const DescribedAnswer& answer, const DescribedMachine& machine);

/// One line a step of a plan, and the sums.
struct DescribedPlan {
  nlohmann::ordered_json json;
  std::string text;
};
DescribedPlan describe_plan(const Plan& plan, const DescribedMachine& machine, const std::string& node);

}  // namespace ridgeline
