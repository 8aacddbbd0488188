// State of a plan: graph inputs that are graph outputs too, written in place, such as caches of keys and values.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace ridgeline {

struct StatePair {
  int input = 0, output = 0;  // of the plan: one buffer may serve both
};

/// What the operators that write caches (TensorScatter, RotaryAppend) write into a graph output from a graph input that
/// no other step reads: given one buffer for both, they write the new rows alone.
std::vector<StatePair> state_pairs(const Plan& plan);

}  // namespace ridgeline
