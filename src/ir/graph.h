// Graph: nodes and values in single assignment; each node knows the source nodes it came from; verified after every
// pass.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/attributes.h"
#include "ir/device_kind.h"
#include "ir/dim.h"
#include "ir/infer.h"
#include "ir/op_schema.h"
#include "ir/program.h"

namespace ridgeline {

using ValueId = int;
using NodeId = int;
inline constexpr int kNoValue = -1;  // an omitted optional input or output
inline constexpr int kNoNode = -1;

struct Value {
  std::string name;
  ValueInfo info;  // dtype, shape, known content; `info.constant` if it is a constant (initializer or folded)
  NodeId producer = kNoNode;  // kNoNode: a graph input or a constant
  bool is_input = false;
  bool is_output = false;
  bool channels_last = false;  // chosen by the layout pass: stored with axis 1 innermost
  uint64_t constant_id =
      0;  // identity of a constant across copies of the graph (ConstantStore's key); 0: not a constant

  bool is_constant() const { return bool(info.constant); }
  DType dtype() const { return info.dtype; }
  const Shape& shape() const { return *info.shape; }
  int rank() const { return int(info.shape->size()); }
};

struct Node {
  NodeId id = kNoNode;
  const OpSchema* op = nullptr;
  std::string name;
  Attributes attributes;
  std::vector<ValueId> inputs;  // the operator's own (kNoValue: omitted), then the program's further operands
  int op_inputs = 0;
  std::vector<ValueId> outputs;  // kNoValue: not wanted
  std::shared_ptr<const Program>
      program;                      // see Problem::program; may be null for an elementwise operator (its expression)
  std::vector<std::string> origin;  // names of the imported nodes this one stands for
  bool alive = true;

  ValueId input(int i) const { return i < int(inputs.size()) ? inputs[size_t(i)] : kNoValue; }
  ValueId output(int i = 0) const { return i < int(outputs.size()) ? outputs[size_t(i)] : kNoValue; }
  bool is(std::string_view op_name) const { return op->name == op_name; }
};

class Graph {
 public:
  std::string name;
  DeviceKind target = DeviceKind::kCpu;  // whose kernels decide which rewrites are legal
  std::vector<ValueId> inputs;           // in the model's order; constants are not among them
  std::vector<ValueId> outputs;          // may repeat a value, may be an input or a constant

  // ---- building
  ValueId add_input(std::string name, DType dtype, std::optional<Shape> shape);
  ValueId add_constant(std::string name, Tensor tensor);  // a new constant_id
  /// Adds a node after its producers; outputs get fresh names if `output_names` is shorter; infers them.
  NodeId add_node(const OpSchema& op, std::vector<ValueId> inputs, Attributes attributes = {}, int outputs = 1,
                  std::vector<std::string> output_names = {}, std::string name = {});
  /// The same for an elementwise Program (op "Elementwise"): inputs in the order of the program's.
  NodeId add_program(Program program, std::vector<ValueId> inputs, std::string output_name = {});
  void mark_output(ValueId value);
  std::string fresh_name(std::string_view stem);
  void rename(ValueId value, const std::string& name);  // to a name that no value has

  // ---- reading
  const Node& node(NodeId id) const { return nodes_[size_t(id)]; }
  Node& node(NodeId id) { return nodes_[size_t(id)]; }
  const Value& value(ValueId id) const { return values_[size_t(id)]; }
  Value& value(ValueId id) { return values_[size_t(id)]; }
  int node_capacity() const { return int(nodes_.size()); }  // ids run below this; dead ones included
  int value_count() const { return int(values_.size()); }
  int live_nodes() const;
  /// Live nodes in topological order (stable: by id among the ready).
  std::vector<NodeId> order() const;
  Node* producer(ValueId value) {
    return value < 0 || values_[size_t(value)].producer < 0 ? nullptr
                                                            : &nodes_[size_t(values_[size_t(value)].producer)];
  }
  const Node* producer(ValueId value) const { return const_cast<Graph*>(this)->producer(value); }
  /// Live nodes that read the value (a node that reads it twice is listed twice). A graph output counts in `uses`.
  const std::vector<NodeId>& users(ValueId value) const { return users_[size_t(value)]; }
  int uses(ValueId value) const {
    return int(users_[size_t(value)].size()) + (values_[size_t(value)].is_output ? 1 : 0);
  }
  /// Sole user, or nullptr.
  Node* only_user(ValueId value);
  const Tensor* constant(ValueId value) const {
    return value >= 0 && values_[size_t(value)].is_constant() ? &values_[size_t(value)].info.constant : nullptr;
  }
  ValueId find_value(std::string_view name) const;  // kNoValue if none

  // ---- changing
  void set_input(Node& node, int input, ValueId value);
  void set_inputs(Node& node, std::vector<ValueId> inputs, int op_inputs);
  /// Every reader of `from`, and the graph's outputs, read `to` instead. A graph output keeps its name.
  void replace_uses(ValueId from, ValueId to);
  void remove(Node& node);  // its outputs must have no readers
  int remove_dead();        // nodes none of whose outputs is read; returns how many
  /// Makes `to` the value that `node` output i writes (the old one stays without producer).
  void set_output(Node& node, int output, ValueId value);
  /// Turns a value into a constant: its producer no longer writes it.
  void make_constant(ValueId value, Tensor tensor);

  /// Infers every value in order; stops at the first rejection with an Error naming the node.
  /// Nodes whose shape needs the content of a graph input leave their outputs' shape unknown and are listed in
  /// `unresolved`.
  struct Unresolved {
    NodeId node;
    std::string reason;
    ValueId depends_on;
  };
  std::vector<Unresolved> infer();
  void infer(Node& node);
  /// The problems found: dangling ids, cycles, duplicate names, users out of step, dtype or shape that infer
  /// contradicts. Empty: sound.
  std::vector<std::string> verify() const;
  /// Replaces bound symbols in every shape and known content.
  void bind(const Bindings& bindings);
  /// Symbols still open in the inputs' shapes, in order of appearance.
  std::vector<std::string> symbols() const;

  std::string text() const;  // one line a node, golden-tested

 private:
  std::deque<Node> nodes_;  // deques: references stay valid while a pass adds nodes
  std::deque<Value> values_;
  std::vector<std::vector<NodeId>> users_;
  std::unordered_map<std::string, ValueId> by_name_;
  int fresh_ = 0;

  ValueId add_value(std::string name);
  void add_use(ValueId value, NodeId node);
  void drop_use(ValueId value, NodeId node);
};

/// "Elementwise": the operator of every fused Program. "Add", "Relu", ... become it when lowered.
const OpSchema& elementwise_op();

/// The Program of an elementwise node: its own, or its schema's expression at the inputs' dtypes and the node's
/// attributes.
Program program_of(const Graph& graph, const Node& node);
Program program_of(const OpSchema& op, const Attributes& attributes, std::span<const DType> inputs);

}  // namespace ridgeline
