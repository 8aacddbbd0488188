// The nodes of a file in topological order, and every name written exactly once.
#pragma once

#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "formats/onnx/functions.h"

namespace ridgeline {

/// Indices into `nodes`, producers first, else in the file's order; a node reads what its subgraphs read. `given`:
/// names of inputs and initializers; `around`: does a graph around this one define the name? Throws Error{kBadModel}
/// for a name that is written twice, one that nobody writes, a cycle, a name that is no UTF-8.
std::vector<int> node_order(const std::string& file, const std::vector<SourceNode>& nodes,
                            const std::unordered_set<std::string>& given,
                            const std::function<bool(const std::string&)>& around);

/// "node 'n' (Op)".
std::string describe(const SourceNode& node);

}  // namespace ridgeline
