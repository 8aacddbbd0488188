// What stands behind the public names for models and plans.
#pragma once

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ridgeline/plan.h"
#include "session/session.h"

namespace ridgeline {

struct LoadedModel::State {
  Model model;
};

struct PlannedModel::State {
  std::shared_ptr<const Plan> plan;
};

struct OptimizedModel::State {
  static constexpr size_t kMostPlans = 16;
  std::mutex mutex;  // planning in two threads
  Graph graph;
  Model source;  // what it was made from, without its graph
  Bindings bindings;
  PipelineOptions pipeline;
  bool stands_packed = false;  // from a saved plan: the store holds the weights
  std::vector<Rewrite> rewrites;
  ConstantStore store;
  std::list<std::pair<std::string, std::shared_ptr<PlannedModel::State>>> plans;  // the latest used first
};

PlannedStep planned_step(const Step& step);
std::vector<Rewrite> rewrites_of(const std::vector<Decision>& decisions);

}  // namespace ridgeline
