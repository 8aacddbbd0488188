// The nodes of a file in topological order, and every name written exactly once.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "formats/onnx/functions.h"

namespace ridgeline {

/// Indices into `nodes`, producers first, else in the file's order. `given`: names of inputs and initializers.
/// Throws Error{kBadModel} for a name that is written twice, one that nobody writes, a cycle, a name that is no UTF-8.
std::vector<int> node_order(const std::string& file, const std::vector<SourceNode>& nodes,
                            const std::unordered_set<std::string>& given);

/// "node 'n' (Op)".
std::string describe(const SourceNode& node);

}  // namespace ridgeline
