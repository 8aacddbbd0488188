#pragma once

#include "ir/graph.h"
#include "optimize/decision.h"

namespace ridgeline {

void expand_functions(Graph& graph, Decisions& decisions);

}  // namespace ridgeline
