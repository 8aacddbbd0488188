// Loading with what a caller may want to know or check beside the model.
#pragma once

#include <string>
#include <vector>

#include "session/session.h"

namespace ridgeline {

/// load_model with the notes of the import: what contradicts the graph, or was taken otherwise than the file says.
Model load_model(const std::string& path, const LoadOptions& options, std::vector<std::string>& notes,
                 const std::string& external_root = "");

/// Throws Error{kUsage} that lists the open dimensions if the graph lacks one of `dims`, or an extent is negative.
void check_dims(const Graph& graph, const Bindings& dims);

}  // namespace ridgeline
