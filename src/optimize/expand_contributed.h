// The pass over com.microsoft's operators.
#pragma once

#include "optimize/passes.h"

namespace ridgeline {

void expand_contributed(Graph& graph, Decisions& decisions);

}  // namespace ridgeline
