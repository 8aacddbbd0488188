// Nodes of a model under construction, with names that are unique, and the operator set that they need.
#pragma once

#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "formats/onnx/model_writer.h"
#include "ir/attributes.h"
#include "ir/op_schema.h"
#include "ir/program.h"

namespace ridgeline {

class NodeWriter {
 public:
  explicit NodeWriter(onnx::GraphProto& graph) : graph_(&graph) {}
  /// Nodes go into another graph from now on: a subgraph. Returns the one before. Weights stay with the model's graph.
  onnx::GraphProto* enter(onnx::GraphProto* graph) { return std::exchange(graph_, graph); }

  void reserve(const std::string& name) { names_.insert(name); }
  std::string fresh(const std::string& stem);
  /// Adds a node of the standard (or of com.microsoft) whose outputs get these names.
  onnx::NodeProto& node(const std::string& op, std::vector<std::string> inputs, std::vector<std::string> outputs,
                        const std::string& name);
  /// The same with one fresh output, which is returned.
  std::string call(const std::string& op, std::vector<std::string> inputs, const std::string& prefix);
  void need(int opset) { opset_ = std::max(opset_, opset); }
  int opset() const { return opset_; }
  void add_weight(const std::string& name, const Tensor& tensor) { weights_.push_back({name, tensor}); }
  /// A shared scalar.
  std::string scalar(DType dtype, double value, int64_t integer);
  std::string integers(const std::vector<int64_t>& values);
  const std::vector<Weight>& weights() const { return weights_; }

  /// The program as standard operators. `inputs`, `outputs`: names; `shape`: of every output, if known (an output that
  /// depends on narrower operands alone is expanded to it).
  void program(const Program& program, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
               const std::string& prefix, const std::vector<Extents>* input_shapes, const Extents* shape);

 private:
  std::string instruction(const Program& program, const Instruction& in, const std::vector<std::string>& operands,
                          const std::string& prefix);
  bool rename(int first_node, const std::string& from, const std::string& to);
  std::string cast(const std::string& value, DType to, const std::string& prefix);

  onnx::GraphProto* graph_;
  std::unordered_set<std::string> names_;
  std::unordered_set<std::string> renamed_;  // outputs of programs
  std::map<std::string, int> next_;
  std::vector<Weight> weights_;
  std::map<std::string, std::string> shared_;  // "f32 0.5" -> name
  int opset_ = 17;
};

}  // namespace ridgeline
