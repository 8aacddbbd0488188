// Forms of nodes with subgraphs (If, Loop, Scan) on their way into the graph.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "formats/onnx/upgrade.h"
#include "onnx.pb.h"

namespace ridgeline {

/// The node's only attribute of that name, a graph. Throws Error with the bare reason.
onnx::GraphProto& subgraph_of(onnx::NodeProto& node, const std::string& attribute);

/// What is known of the inputs that the file gives to a node's subgraphs. Omitted inputs of a Loop are written out.
std::vector<ValueInfo> formals_of(NodeForm& form);

struct Capture {
  std::string name;  // in the file
  ValueId outer = kNoValue;
};
/// Makes the inputs of a subgraph: its first `formals` ones, then all that the node's subgraphs capture. `own`: what
/// this one captured, in the order of its inputs.
void order_captures(const Graph& around, Graph& body, size_t formals, const std::vector<Capture>& own,
                    const std::vector<Capture>& all);

/// Does inference accept the node as long as nothing but the types of its inputs is known?
bool fits_without_shapes(const Graph& graph, const Node& node);

/// Scan of opset 8, whose operands all begin with an axis of batches, becomes a Scan over batches whose body is a Scan
/// of today's form, which is returned.
const onnx::NodeProto* scan_of_batches(onnx::NodeProto& node, NodeForm& form);

}  // namespace ridgeline
