// Old forms of operators, rewritten to the newest one: the schemas declare no other.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

/// A node on its way into the graph.
struct NodeForm {
  Graph& graph;
  std::string op;
  std::string domain;
  std::string name;
  int64_t opset;  // of its domain
  std::vector<ValueId> inputs;
  Attributes attributes;
  int outputs;

  bool has(int input) const { return input < int(inputs.size()) && inputs[size_t(input)] != kNoValue; }
  void set_input(int input, ValueId value);
  /// A new constant "<node>/<what>".
  ValueId constant(const std::string& what, Tensor tensor);
  ValueId integers(const std::string& what, const std::vector<int64_t>& values);
  /// A node in front of this one, of the same origin; its output.
  ValueId before(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {});
};

/// Rewrites `form` in place, adding nodes and constants before it where it takes several. Throws Error{kUnsupported}
/// with the bare reason for an old form that has no equal among the new ones.
void upgrade(NodeForm& form);

/// The same for com.microsoft's operators; upgrade calls it.
void upgrade_contributed(NodeForm& form);

/// What the operator is called today: Upsample is Resize, Scatter is ScatterElements.
std::string newest_name(const std::string& op, const std::string& domain, int64_t opset);

}  // namespace ridgeline
