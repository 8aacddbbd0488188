// Problem: one operator with everything that decides how it can run: layouts, dtypes, attributes, constants, epilogue.
// The dispatch key, the argument of cost and of every kernel's functions, and a line of text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attributes.h"
#include "ir/device_kind.h"
#include "ir/op_schema.h"
#include "ir/program.h"
#include "ridgeline/tensor.h"

namespace ridgeline {

struct Operand {
  DType dtype = DType::kNone;  // kNone: an optional one that is absent
  Layout layout;
  bool is_constant = false;  // its content is fixed before the first run (weights)
  Tensor constant;           // the content where it is at hand: shape-like inputs (axes, pads) always have it
  bool present() const { return dtype != DType::kNone; }
  const Extents& shape() const { return layout.shape; }
  int64_t elements() const { return layout.elements(); }
  int64_t bytes() const { return bytes_of(dtype, elements()); }
};

struct Problem {
  const OpSchema* op = nullptr;
  Attributes attributes;
  std::vector<Operand> inputs;  // the operator's own, then the program's further operands
  int op_inputs = 0;            // how many are the operator's own
  std::vector<Operand> outputs;
  /// Elementwise operators: the work itself, over all `inputs`. Others: the epilogue, whose input 0 is output 0 of the
  /// operator (rounded to nothing in between: it is the accumulator), inputs 1.. are inputs[op_inputs..]. Null: none.
  std::shared_ptr<const Program> program;
  int threads = 1;  // on a GPU: 1
  DeviceKind device = DeviceKind::kCpu;

  bool has(int input) const { return input < op_inputs && inputs[size_t(input)].present(); }
  const Operand& input(int i) const { return inputs[size_t(i)]; }
  const Operand& output(int i = 0) const { return outputs[size_t(i)]; }
  int epilogue_operands() const { return int(inputs.size()) - op_inputs; }
  bool has_epilogue() const { return program && !op->is_elementwise(); }
  int64_t integer(std::string_view name) const;  // with the schema's default
  double number(std::string_view name) const;
  std::string string(std::string_view name) const;
  std::vector<int64_t> integers(std::string_view name, std::vector<int64_t> fallback = {}) const;
  bool flag(std::string_view name) const { return integer(name) != 0; }
  /// Content of a shape-like input as integers (it is constant once a problem exists).
  std::vector<int64_t> values(int input) const;

  /// Bytes of all present inputs once (a broadcast operand once at its own size), and of the outputs.
  int64_t read_bytes() const;
  int64_t write_bytes() const;
  /// "Conv x=f32[1,64,56,56] w=f32[64,64,3,3] pads=1,1,1,1 epilogue='relu(v + b)'": accepted by parse_problem.
  std::string text() const;
};

/// The type whose peak bounds the problem's arithmetic: bf16 where both operands of a contraction are, i8 where both
/// are 8-bit integers or activations are quantized (act=i8), else f32.
DType arithmetic_of(const Problem& problem);

/// Cost of the operator and its program together.
Cost cost_of(const Problem& problem);

/// "x=f32[3,5,127] scale=f32[127] axis=-1": inputs by the schema's names (dtype may be left out after the first),
/// attributes by theirs. Small integer inputs may be given by content: "axes=i64{0,2}". Infers the outputs. Throws
/// Error{kUsage} that lists the operator's keys.
Problem parse_problem(const OpSchema& op, std::string_view keys);

}  // namespace ridgeline
