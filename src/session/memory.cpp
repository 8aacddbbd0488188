// Time against memory: a price on each byte of packed weights and workspace moves the choice of kernels from the
// fastest to the smallest (Lagrange's multiplier: each price gives a plan that no other choice of kernels beats in both
// estimates).
#include <algorithm>
#include <array>
#include <cmath>

#include "session/session.h"

namespace ridgeline {
namespace {

// From 0.1 ns for a KiB to 0.1 ms a byte, where no estimate counts any more. Winograd's weights, the dearest here, cost
// between 0.001 and 0.02 ns for each byte that they add.
constexpr int kPrices = 32;
const std::array<double, kPrices> kMemoryPrices = [] {
  std::array<double, kPrices> prices{};
  double price = 1e-4;
  for (int i = 1; i < kPrices - 1; ++i, price *= 1.6) prices[size_t(i)] = price;
  prices[kPrices - 1] = 1e5;
  return prices;
}();

}  // namespace

std::span<const double> memory_prices() { return kMemoryPrices; }

Plan dry_plan(Graph& graph, PlanOptions options, double ns_per_byte) {
  options.dry = true;
  options.ns_per_byte = ns_per_byte;
  ConstantStore scratch;
  return make_plan(graph, options, scratch, true);
}

double price_within(const Model& model, const CompileOptions& options) {
  Graph graph = model.graph;
  graph.target = options.plan.device;
  Decisions decisions;
  run_passes(graph, options.pipeline, decisions);
  PlanOptions plan = plan_options_for(options.pipeline, options.plan);
  plan.bindings = model.bindings;
  if (!plan.ceilings) plan.ceilings = cached_ceilings();
  return price_within(graph, plan, options);
}

namespace {

// What counts against a budget: on a GPU what the card holds, elsewhere the process while it packs, too.
int64_t budgeted_bytes(const Plan& plan) {
  return plan.device == DeviceKind::kCpu ? plan.peak_bytes_with_packing() : plan.device_bytes();
}

}  // namespace

double price_within(Graph& graph, const PlanOptions& plan, const CompileOptions& options) {
  int64_t least = 0;
  const int64_t so_far = options.most_resident ? options.most_resident() : 0;
  const auto total = [&](int64_t bytes) { return double(bytes + options.process_bytes) * options.memory_margin; };
  // Planning takes something beside the plan: 1.3 to 1.6 MB of an 8-bit MobileNetV3, whose load takes more than its
  // run.
  constexpr int64_t kPlanning = 3'000'000;
  if (so_far > 0 && double(so_far + kPlanning) > total(options.memory_budget)) {
    for (const double price : kMemoryPrices) {
      const double bytes = total(budgeted_bytes(dry_plan(graph, plan, price)));
      least = least == 0 ? int64_t(bytes) : std::min(least, int64_t(bytes));
    }
    fail(ErrorCode::kResource,
         "out of memory: the budget of {:.1f} MB is not feasible: loading and optimizing the model took {:.1f} MB, "
         "before any plan (the smallest needs {:.1f}); give --mem-budget {:.0f}MB or more",
         total(options.memory_budget) / 1e6, double(so_far) / 1e6, double(least) / 1e6,
         std::ceil(std::max(double(so_far + kPlanning) * 1.02, double(least)) / 1e6 + 0.5));
  }
  for (const double price : kMemoryPrices) {
    const int64_t bytes = budgeted_bytes(dry_plan(graph, plan, price));
    if (bytes <= options.memory_budget) return price;
    least = least == 0 ? bytes : std::min(least, bytes);
  }
  const auto process = [&](int64_t bytes) {
    return double(bytes + options.process_bytes) * options.memory_margin / 1e6;
  };
  if (plan.device != DeviceKind::kCpu)
    fail(ErrorCode::kResource,
         "out of memory: the budget of {:.1f} MB on the card is not feasible. The smallest plan needs {:.1f} MB: give "
         "--mem-budget {:.0f}MB or more, or a smaller batch",
         double(options.memory_budget) / 1e6, double(least) / 1e6, std::ceil(double(least) / 1e6 + 0.5));
  // Half a MB more and a whole number: what the empty process takes differs a little from start to start.
  fail(ErrorCode::kResource,
       "out of memory: the budget of {:.1f} MB is not feasible. The smallest plan needs {:.1f} MB, of which {:.1f} are "
       "the program itself and {:.0f} % are kept for a wrong prediction: give --mem-budget {:.0f}MB or more, or a "
       "smaller batch",
       process(options.memory_budget), process(least), double(options.process_bytes) / 1e6,
       (options.memory_margin - 1) * 100, std::ceil(process(least) + 0.5));
}

}  // namespace ridgeline
