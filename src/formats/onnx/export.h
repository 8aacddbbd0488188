// A Graph, optimized or not, as a standard ONNX model: programs and fused operators are written as the standard
// operators that they mean.
#pragma once

#include <cstdint>
#include <string>

#include "ir/graph.h"

namespace ridgeline {

struct ExportOptions {
  /// Weights in "<path>.data" beside the model. Done anyway where the model would not fit into 2 GiB.
  bool external_data = false;
  std::string producer_version;
};

/// Weights are written from where they lie. The file appears complete or not at all.
/// Throws Error{kUnsupported} for an operator with no standard form, Error{kResource} if writing fails.
void export_onnx(const Graph& graph, const std::string& path, const ExportOptions& options = {});

/// The first node whose operator has no standard form, as "node 'NAME' (OPERATOR)"; empty: export_onnx finds none.
std::string node_without_onnx_form(const Graph& graph);

}  // namespace ridgeline
