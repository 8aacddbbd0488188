// Op: one operator by name and attributes, planned for dtypes and layouts, run on the caller's buffers.
#pragma once

#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "ridgeline/context.h"
#include "ridgeline/tensor.h"

namespace ridgeline {

/// An attribute as the standard has it: an integer, a number, a word, or a list of them, or a tensor.
struct OpAttribute {
  using Value = std::variant<int64_t, double, std::string, std::vector<int64_t>, std::vector<double>,
                             std::vector<std::string>, Tensor>;
  std::string name;
  Value value;

  OpAttribute(std::string name_, int value_) : name(std::move(name_)), value(int64_t(value_)) {}
  OpAttribute(std::string name_, const char* value_) : name(std::move(name_)), value(std::string(value_)) {}
  OpAttribute(std::string name_, std::initializer_list<int64_t> value_)
      : name(std::move(name_)), value(std::vector<int64_t>(value_)) {}
  OpAttribute(std::string name_, Value value_) : name(std::move(name_)), value(std::move(value_)) {}
};
using OpAttributes = std::vector<OpAttribute>;

/// What an operator is planned for in the place of one input: a dtype and a layout; or a constant, with its content.
/// Default-constructed: an optional input that is absent.
struct OpInput {
  DType dtype = DType::kNone;
  Layout layout;
  Tensor constant;

  OpInput() = default;
  OpInput(DType dtype_, Layout layout_) : dtype(dtype_), layout(std::move(layout_)) {}
  OpInput(DType dtype_, Extents shape) : dtype(dtype_), layout(Layout(std::move(shape))) {}
  /// Weights are packed once, as the chosen kernel wants them. Axes, pads, shapes and other inputs on whose content the
  /// output's shape depends must be given so. The tensor's memory is shared, not copied, where the kernel takes it as
  /// it is.
  static OpInput constant_of(Tensor tensor);
};

struct OpOptions {
  std::string kernel;           // a kernel by name; empty: the dispatcher's choice
  int outputs = 0;              // how many outputs are wanted; 0: those that are not optional
  std::vector<Layout> layouts;  // of the outputs, in order; missing ones are row-major
};

/// One kernel's answer to the problem.
struct OpCandidate {
  std::string kernel;
  bool supported = false;
  std::string reason;  // why not
  double predicted_us = 0;
};

struct OpCost {
  int64_t flops = 0;    // of the direct algorithm; a multiply-add is two
  int64_t bytes = 0;    // compulsory: each input and each output once
  double floor_us = 0;  // that the machine's ceilings allow
  std::string bound;    // compute, memory, launch, latency
};

/// Planned once, run often. One thread at a time runs an Op.
class Op {
 public:
  /// Throws Error: kUsage if there is no such operator, attribute or kernel; kBadModel if shapes, dtypes or attributes
  /// do not fit (the message names the input and what was allowed); kUnsupported if no kernel runs the problem.
  Op(std::string_view name, const std::vector<OpInput>& inputs, const OpAttributes& attributes = {},
     const OpOptions& options = {}, const Context& context = thread_context());
  Op(Op&&) noexcept;
  Op& operator=(Op&&) noexcept;
  ~Op();

  int outputs() const;
  DType output_dtype(int output = 0) const;
  const Layout& output_layout(int output = 0) const;

  /// Runs on buffers that lie as the layouts say. Addresses in the operator's order of inputs; those of constants and
  /// absent inputs are not read and may be null, at the end also left out. Allocates and copies nothing (but the
  /// references, which work in double). Throws Error{kBadInput} only where data are indices and one is out of range.
  void run(std::span<const void* const> inputs, std::span<void* const> outputs);
  void run(std::initializer_list<const void*> inputs, std::initializer_list<void*> outputs) {
    run(std::span<const void* const>(inputs.begin(), inputs.size()),
        std::span<void* const>(outputs.begin(), outputs.size()));
  }
  /// The same into new row-major tensors. Throws Error{kBadInput} if a tensor is not of the dtype and shape planned
  /// for, or the plan's layouts are not row-major.
  std::vector<Tensor> operator()(const std::vector<Tensor>& inputs);

  std::string_view kernel() const;  // the chosen one
  std::string problem() const;      // as `ridgeline bench` reads it
  std::vector<OpCandidate> candidates() const;
  OpCost cost() const;
  int64_t workspace_bytes() const;

  struct State;

 private:
  std::unique_ptr<State> state_;
};

/// Plans the operator for these row-major tensors, or takes the plan from the context's cache, and runs it. What the
/// typed calls of ops.h use. Absent inputs are empty Tensors. Inputs on whose content the shape depends may be any
/// tensors: a change of their content is a new plan.
std::vector<Tensor> call_op(std::string_view name, const std::vector<Tensor>& inputs,
                            const OpAttributes& attributes = {}, int outputs = 0, Context& context = thread_context());

}  // namespace ridgeline
