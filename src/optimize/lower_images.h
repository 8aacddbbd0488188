#pragma once

#include "ir/graph.h"
#include "optimize/decision.h"

namespace ridgeline {

/// The part of lower_to_bf16 that works on convolutions and the images between them.
void lower_images_to_bf16(Graph& graph, Decisions& decisions);

}  // namespace ridgeline
