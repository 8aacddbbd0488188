// Builder: writes an operator in smaller ones. The same code gives the reference, the gradient, and (traced once) the
// pattern that the matcher reads backwards.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

class Builder;

/// A value under construction; arithmetic builds nodes.
struct V {
  Builder* builder = nullptr;
  ValueId id = kNoValue;
  explicit operator bool() const { return id != kNoValue; }
};

class Builder {
 public:
  /// Builds into `graph`; `inputs` are the operator's inputs (kNoValue: omitted), attributes those of the node.
  Builder(Graph& graph, const OpSchema& op, const Attributes& attributes, std::vector<ValueId> inputs);

  int inputs() const { return int(inputs_.size()); }
  bool has(int input) const { return input < inputs() && inputs_[size_t(input)] != kNoValue; }
  V input(int i) { return {this, inputs_[size_t(i)]}; }
  void result(V value) { results_.push_back(value.id); }  // in the order of the outputs
  const std::vector<ValueId>& results() const { return results_; }

  int64_t integer(std::string_view name) const;
  double number(std::string_view name) const;
  std::string string(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name, std::vector<int64_t> fallback = {}) const;
  bool flag(std::string_view name) const { return integer(name) != 0; }
  int rank(V x) const { return graph_.value(x.id).rank(); }
  const Shape& shape(V x) const { return graph_.value(x.id).shape(); }
  /// Content of a small integer input (axes, sizes), if it is known; empty otherwise.
  std::vector<int64_t> values(V x) const;
  DType dtype(V x) const { return graph_.value(x.id).dtype(); }
  /// The attribute as a scalar constant of x's dtype: in a pattern a hole for any number.
  V number_like(std::string_view attribute, V x);
  V constant(double value, V like);  // a scalar of like's dtype: in a pattern exactly this number
  V integers_constant(std::vector<int64_t> values);

  /// Any operator by name.
  V op(std::string_view name, std::vector<V> inputs, Attributes attributes = {});
  std::vector<V> ops(std::string_view name, std::vector<V> inputs, int outputs, Attributes attributes = {});
  // The common ones, so that a decomposition reads as the formula.
  V add(V a, V b) { return op("Add", {a, b}); }
  V sub(V a, V b) { return op("Sub", {a, b}); }
  V mul(V a, V b) { return op("Mul", {a, b}); }
  V div(V a, V b) { return op("Div", {a, b}); }
  V neg(V a) { return op("Neg", {a}); }
  V sqrt(V a) { return op("Sqrt", {a}); }
  V exp(V a) { return op("Exp", {a}); }
  V matmul(V a, V b) { return op("MatMul", {a, b}); }
  V transpose(V a, std::vector<int64_t> perm);
  V reshape(V a, std::vector<int64_t> shape);
  V cast(V a, DType dtype);
  V reduce(std::string_view op_name, V a, std::vector<int64_t> axes, bool keepdims = true);  // "ReduceMean", ...
  V softmax(V a, int64_t axis);
  Graph& graph() { return graph_; }

 private:
  Graph& graph_;
  const OpSchema& op_;
  const Attributes& attributes_;
  std::vector<ValueId> inputs_;
  std::vector<ValueId> results_;
};

inline V operator+(V a, V b) { return a.builder->add(a, b); }
inline V operator-(V a, V b) { return a.builder->sub(a, b); }
inline V operator*(V a, V b) { return a.builder->mul(a, b); }
inline V operator/(V a, V b) { return a.builder->div(a, b); }

/// Gradient: the same, plus the gradients of the outputs; `input_gradient(i, v)` says d(loss)/d(input i).
class Gradient : public Builder {
 public:
  Gradient(Graph& graph, const OpSchema& op, const Attributes& attributes, std::vector<ValueId> inputs,
           std::vector<ValueId> outputs, std::vector<ValueId> output_gradients);
  int outputs() const { return int(outputs_.size()); }
  V output(int i = 0) { return {this, outputs_[size_t(i)]}; }
  bool has_gradient(int output) const {
    return output < int(output_gradients_.size()) && output_gradients_[size_t(output)] != kNoValue;
  }
  V gradient(int output = 0) { return {this, output_gradients_[size_t(output)]}; }
  void input_gradient(int input, V value);
  /// Sums `value` over the axes along which `input` was broadcast, and gives it input's shape.
  V unbroadcast(V value, V like);
  const std::vector<ValueId>& input_gradients() const { return input_gradients_; }

 private:
  std::vector<ValueId> outputs_, output_gradients_, input_gradients_;
};

/// The first decomposition of `op` as a graph of its own: inputs and outputs as the operator's.
Graph decompose(const OpSchema& op, const Attributes& attributes, const std::vector<ValueInfo>& inputs, int outputs,
                int spelling = 0);

}  // namespace ridgeline
