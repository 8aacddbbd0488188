// Local functions of a model, inlined: the importer sees plain nodes only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "onnx.pb.h"

namespace ridgeline {

using Opsets = std::map<std::string, int64_t>;  // domain ("" is ai.onnx) -> version

/// "ai.onnx" is a long name of "".
std::string normal_domain(const std::string& domain);
Opsets opsets_of(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports);

struct SourceNode {
  onnx::NodeProto* proto;
  const Opsets* opsets;  // those of the graph or function that it stands in
  std::string name;      // "Conv_3" for the fourth node of the graph if it has none
};

/// The names that the subgraphs of a node read and do not define themselves, in order of appearance.
std::vector<std::string> captured_names(const onnx::NodeProto& node);

/// The local functions of a model, which are replaced by their bodies. Points into `model`.
class LocalFunctions {
 public:
  LocalFunctions(onnx::ModelProto& model, const std::string& file);
  /// The nodes of a graph (the model's, or a subgraph) in its order, calls of functions inlined. Nodes' names begin
  /// with `prefix`.
  std::vector<SourceNode> inlined(onnx::GraphProto& graph, const Opsets& opsets, const std::string& prefix);
  const Opsets& opsets() const { return opsets_; }

 private:
  struct Function {
    const onnx::FunctionProto* proto;
    Opsets opsets;
    std::map<std::string, onnx::AttributeProto> defaults;
  };
  void add(onnx::NodeProto* node, const Opsets& opsets, const std::string& name, int depth);
  void inline_call(const onnx::NodeProto& call, const Function& function, const std::string& name, int depth);

  std::string file_;
  Opsets opsets_;
  std::map<std::pair<std::string, std::string>, Function> functions_;
  std::vector<SourceNode> nodes_;  // of the graph at work
  int64_t count_ = 0;              // of all graphs
  std::deque<onnx::NodeProto> copies_;
  int64_t copied_bytes_ = 0;
};

}  // namespace ridgeline
