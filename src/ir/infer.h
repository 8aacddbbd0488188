// What a schema's `infer` sees: dtypes, shapes and known contents of the inputs, the attributes; and what it sets.
#pragma once

#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "ir/attributes.h"
#include "ir/dim.h"
#include "ir/op_schema.h"

namespace ridgeline {

/// What is known of a value. `values`: its content, for small integer tensors computed from shapes and constants
/// (a Shape, Gather, Concat chain): rank 0 or 1 only. `constant`: its content as a tensor, if it is a constant.
struct ValueInfo {
  DType dtype = DType::kNone;
  std::optional<Shape> shape;  // nullopt: even the rank is unknown
  std::optional<std::vector<Dim>> values;
  Tensor constant;
};

class Infer {
 public:
  Infer(const OpSchema& op, const Attributes& attributes, std::string node_name, std::vector<const ValueInfo*> inputs,
        int outputs);

  const OpSchema& op() const { return op_; }
  int inputs() const { return int(inputs_.size()); }  // trailing omitted ones are not counted
  int outputs() const { return int(results_.size()); }
  bool has(int input) const { return input >= 0 && input < inputs() && inputs_[size_t(input)] != nullptr; }
  bool wants(int output) const { return output < outputs(); }
  DType dtype(int input) const;
  const Shape& shape(int input) const;  // rejects if the input is absent or of unknown rank
  int rank(int input) const { return int(shape(input).size()); }
  const Dim& dim(int input, int axis) const { return shape(input)[size_t(axis)]; }

  /// Integer content of an input, if known (as Dims, since it may come from shapes).
  std::optional<std::vector<Dim>> values(int input) const;
  /// Its content, or a rejection: "the output's shape depends on the content of input 'shape', which is not a
  /// constant". Such an error carries needs_values(): binding may supply the content and try again.
  std::vector<Dim> need_values(int input) const;
  std::vector<int64_t> need_integers(int input) const;  // the same, and all must be known numbers
  const Tensor* constant(int input) const;              // any dtype; nullptr if not constant

  const Attributes& attributes() const { return attributes_; }
  int64_t integer(std::string_view name) const;  // with the schema's default
  double number(std::string_view name) const;
  std::string string(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name, std::vector<int64_t> fallback = {}) const;
  bool flag(std::string_view name) const { return integer(name) != 0; }
  /// An axis in [-rank, rank) made non-negative; rejects others, naming axis and rank.
  int axis(int64_t axis, int rank) const;
  std::vector<int> axes(const std::vector<int64_t>& axes, int rank) const;  // also rejects duplicates; sorted

  /// Numpy broadcast of the shapes of these inputs; rejects with both shapes.
  Shape broadcast_shape(const std::vector<int>& inputs) const;

  void output(int output, DType dtype, Shape shape);
  void output_values(int output, std::vector<Dim> values);  // content known by shape arithmetic
  void same_as(int output, int input) { this->output(output, dtype(input), shape(input)); }
  void require(bool condition, const std::string& message) const {
    if (!condition) reject(message);
  }
  /// The same with a message that is made only if it is needed: inference runs after every pass.
  template <typename Message>
  requires std::is_invocable_r_v<std::string, Message>
  void require(bool condition, const Message& message) const {
    if (!condition) require(false, message());
  }
  /// Throws Error{kBadModel}: "node 'n' (Op): <message>".
  [[noreturn]] void reject(const std::string& message) const;

  std::vector<ValueInfo>& results() { return results_; }

 private:
  const OpSchema& op_;
  const Attributes& attributes_;
  std::string node_name_;
  std::vector<const ValueInfo*> inputs_;
  std::vector<ValueInfo> results_;
};

/// Thrown by need_values: which input's content the shape depends on.
class NeedsValues : public Error {
 public:
  NeedsValues(int input, const std::string& message) : Error(ErrorCode::kUnsupported, message), input_(input) {}
  int input() const { return input_; }

 private:
  int input_;
};

/// Checks arity, dtypes against the specs, attributes' presence; then calls the schema's infer (or the elementwise
/// rule).
std::vector<ValueInfo> infer_node(const OpSchema& op, const Attributes& attributes, const std::string& node_name,
                                  const std::vector<const ValueInfo*>& inputs, int outputs);

/// The elementwise rule: broadcast all inputs; dtype of the first (or the schema's `result`).
void infer_elementwise(Infer& i);

}  // namespace ridgeline
