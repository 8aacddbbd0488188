#include "plan/state.h"

#include <string_view>
#include <utility>

namespace ridgeline {
namespace {

// Input and output of the operator that are one cache.
std::vector<std::pair<size_t, size_t>> caches_of(std::string_view op) {
  if (op == "TensorScatter") return {{0, 0}};
  if (op == "RotaryAppend") return {{3, 1}, {4, 2}};
  return {};
}

int readers_of(const Plan& plan, int input) {
  int count = 0;
  for (const Step& step : plan.steps)
    for (const Place& p : step.inputs) count += p.kind == Place::Kind::kInput && p.index == input;
  for (const Plan::PassThrough& p : plan.pass_through)
    count += p.from.kind == Place::Kind::kInput && p.from.index == input;
  return count;
}

}  // namespace

std::vector<StatePair> state_pairs(const Plan& plan) {
  std::vector<StatePair> pairs;
  for (const Step& step : plan.steps) {
    if (step.kind != Step::Kind::kKernel) continue;
    for (const auto& [in, out] : caches_of(step.call.problem.op->name)) {
      const Place &from = step.inputs[in], &to = step.outputs[out];
      if (from.kind == Place::Kind::kInput && to.kind == Place::Kind::kOutput && from.offset_bytes == 0 &&
          to.offset_bytes == 0 && readers_of(plan, from.index) == 1)
        pairs.push_back({from.index, to.index});
    }
  }
  return pairs;
}

}  // namespace ridgeline
