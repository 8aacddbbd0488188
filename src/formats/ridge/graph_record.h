// A graph as a record of plain values, and back: everything but the bytes of its tensors, which stand in a table beside
// it. For saved plans, which keep what no standard file has: fused operators with their Programs, layouts, origins.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ir/graph.h"

namespace ridgeline {

/// Adds the graph's tensors to `tensors`, each buffer once; the record refers to them by number. Constants that nobody
/// reads are left out. Throws Error{kUnsupported} for an input whose extents are expressions over symbols.
nlohmann::json graph_record(const Graph& graph, std::vector<Tensor>& tensors);

/// The graph of a record, from a file that nobody vouches for: every number is checked, operators are looked up by
/// name, shapes are inferred anew. `constant_ids`: the identity that each constant had when it was written -> what it
/// has here. Throws Error{kBadModel} that says what does not fit.
Graph graph_of_record(const nlohmann::json& record, std::span<const Tensor> tensors,
                      std::map<uint64_t, uint64_t>& constant_ids);

}  // namespace ridgeline
