// An ONNX file becomes a Graph: opsets 7 to the newest, every old form upgraded to the one that the schemas declare.
// What a file may hold and which limits it has to keep: docs/onnx.md, docs/security.md.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

/// One line of the list of what we do not have: nodes of one operator that are refused for one reason.
struct UnsupportedOperator {
  std::string op;
  std::string domain;  // "ai.onnx" for the standard's own
  int version = 0;     // of the operator set that the model imports
  int count = 0;
  std::string first_node;
  std::string reason;  // with the nearest form that is supported
};

/// What the importer saw; filled also where it throws because of unsupported operators.
struct ImportReport {
  std::map<std::string, int> operators;  // as written in the file (local functions: after inlining)
  std::vector<UnsupportedOperator> unsupported;
  std::vector<std::string> notes;  // choices a user may want to know of
  int64_t parameters = 0;          // elements of all initializers, and of float tensors in Constant nodes
};

struct ImportOptions {
  /// Unsupported nodes are listed in `report` and left out of the graph, with everything that reads them, instead of
  /// an error: for `inspect`.
  bool collect_unsupported = false;
  ImportReport* report = nullptr;
  std::string external_root;  // a folder that links in place of external data may lead into; "": none is followed
};

/// Throws Error{kBadModel} for a file that is broken, Error{kUnsupported} that lists all unsupported operators at once.
Graph import_onnx(const std::string& path, const ImportOptions& options = {});
/// A model in memory. `folder`: where its external data lies (empty: external data is refused); `name`: used in
/// messages.
Graph import_onnx(std::span<const std::byte> bytes, const std::string& folder, const std::string& name,
                  const ImportOptions& options = {});

}  // namespace ridgeline
