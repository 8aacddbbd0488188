#include "formats/onnx/node_writer.h"

#include <algorithm>
#include <array>

#include "ridgeline/error.h"

namespace ridgeline {
namespace {

/// The standard operator of an instruction that has one of the same operands; empty: it takes several.
struct StandardOp {
  ScalarOp op;
  std::string_view name;
};
constexpr StandardOp kDirect[] = {
    {ScalarOp::kAdd, "Add"},
    {ScalarOp::kSub, "Sub"},
    {ScalarOp::kMul, "Mul"},
    {ScalarOp::kDiv, "Div"},
    {ScalarOp::kPow, "Pow"},
    {ScalarOp::kMin, "Min"},
    {ScalarOp::kMax, "Max"},
    {ScalarOp::kNeg, "Neg"},
    {ScalarOp::kAbs, "Abs"},
    {ScalarOp::kSign, "Sign"},
    {ScalarOp::kReciprocal, "Reciprocal"},
    {ScalarOp::kSqrt, "Sqrt"},
    {ScalarOp::kExp, "Exp"},
    {ScalarOp::kLog, "Log"},
    {ScalarOp::kErf, "Erf"},
    {ScalarOp::kSin, "Sin"},
    {ScalarOp::kCos, "Cos"},
    {ScalarOp::kTan, "Tan"},
    {ScalarOp::kAsin, "Asin"},
    {ScalarOp::kAcos, "Acos"},
    {ScalarOp::kAtan, "Atan"},
    {ScalarOp::kSinh, "Sinh"},
    {ScalarOp::kCosh, "Cosh"},
    {ScalarOp::kTanh, "Tanh"},
    {ScalarOp::kAsinh, "Asinh"},
    {ScalarOp::kAcosh, "Acosh"},
    {ScalarOp::kAtanh, "Atanh"},
    {ScalarOp::kSigmoid, "Sigmoid"},
    {ScalarOp::kSoftplus, "Softplus"},
    {ScalarOp::kRelu, "Relu"},
    {ScalarOp::kFloor, "Floor"},
    {ScalarOp::kCeil, "Ceil"},
    {ScalarOp::kRound, "Round"},
    {ScalarOp::kSelect, "Where"},
    {ScalarOp::kEqual, "Equal"},
    {ScalarOp::kLess, "Less"},
    {ScalarOp::kLessOrEqual, "LessOrEqual"},
    {ScalarOp::kGreater, "Greater"},
    {ScalarOp::kGreaterOrEqual, "GreaterOrEqual"},
    {ScalarOp::kAnd, "And"},
    {ScalarOp::kOr, "Or"},
    {ScalarOp::kXor, "Xor"},
    {ScalarOp::kNot, "Not"},
    {ScalarOp::kIsNan, "IsNaN"},
    {ScalarOp::kIsInf, "IsInf"},
    {ScalarOp::kBitAnd, "BitwiseAnd"},
    {ScalarOp::kBitOr, "BitwiseOr"},
    {ScalarOp::kBitXor, "BitwiseXor"},
    {ScalarOp::kBitNot, "BitwiseNot"},
};

bool is_bitwise(ScalarOp op) {
  return op == ScalarOp::kBitAnd || op == ScalarOp::kBitOr || op == ScalarOp::kBitXor || op == ScalarOp::kBitNot;
}

// Operands of these keep their own type; all others have that of the instruction.
bool mixes_types(ScalarOp op) {
  switch (op) {
    case ScalarOp::kCast:
    case ScalarOp::kPow:
    case ScalarOp::kSelect:
    case ScalarOp::kEqual:
    case ScalarOp::kLess:
    case ScalarOp::kLessOrEqual:
    case ScalarOp::kGreater:
    case ScalarOp::kGreaterOrEqual:
    case ScalarOp::kIsNan:
    case ScalarOp::kIsInf:
      return true;
    default:
      return false;
  }
}

void set_integer(onnx::NodeProto& node, const char* name, int64_t value) {
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(onnx::AttributeProto::INT);
  attribute.set_i(value);
}

Extents broadcast(const Extents& a, const Extents& b) {
  Extents out(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    out[out.size() - 1 - i] = x == 1 ? y : x;
  }
  return out;
}

/// For each output, which inputs it depends on.
std::vector<std::vector<char>> dependences(const Program& program) {
  std::vector<std::vector<char>> of(size_t(program.operands()), std::vector<char>(program.inputs.size(), 0));
  for (size_t i = 0; i < program.inputs.size(); ++i) of[i][i] = 1;
  for (size_t k = 0; k < program.code.size(); ++k) {
    auto& mine = of[size_t(program.first_result()) + k];
    for (const int16_t operand : {program.code[k].a, program.code[k].b, program.code[k].c}) {
      if (operand < 0) continue;
      for (size_t i = 0; i < mine.size(); ++i) mine[i] = char(mine[i] | of[size_t(operand)][i]);
    }
  }
  return of;
}

}  // namespace

std::string NodeWriter::fresh(const std::string& stem) {
  std::string name = stem;
  while (!names_.insert(name).second) name = stem + "." + std::to_string(++next_[stem]);
  return name;
}

onnx::NodeProto& NodeWriter::node(const std::string& op, std::vector<std::string> inputs,
                                  std::vector<std::string> outputs, const std::string& name) {
  onnx::NodeProto& out = *graph_->add_node();
  while (!inputs.empty() && inputs.back().empty()) inputs.pop_back();
  while (!outputs.empty() && outputs.back().empty()) outputs.pop_back();
  for (std::string& input : inputs) out.add_input(std::move(input));
  for (std::string& output : outputs) out.add_output(std::move(output));
  out.set_op_type(op);
  out.set_name(name);
  return out;
}

std::string NodeWriter::call(const std::string& op, std::vector<std::string> inputs, const std::string& prefix) {
  const std::string name = fresh(prefix + "/" + op);
  node(op, std::move(inputs), {name}, name);
  return name;
}

std::string NodeWriter::scalar(DType dtype, double value, int64_t integer) {
  Tensor tensor(dtype, {});
  if (is_float(dtype))
    store_f64(dtype, tensor.data(), 0, value);
  else
    store_i64(dtype, tensor.data(), 0, integer);
  // By bits: -0 and 0 are two.
  const std::string key =
      fmt::format("{} {}", name(dtype), is_float(dtype) ? __builtin_bit_cast(int64_t, value) : integer);
  std::string& known = shared_[key];
  if (known.empty()) {
    known = fresh("scalar_" + std::string(name(dtype)));
    add_weight(known, tensor);
  }
  return known;
}

std::string NodeWriter::integers(const std::vector<int64_t>& values) {
  std::string& known = shared_["ints " + text(values)];
  if (known.empty()) {
    known = fresh("integers");
    add_weight(known, Tensor::from<int64_t>({int64_t(values.size())}, values));
  }
  return known;
}

std::string NodeWriter::cast(const std::string& value, DType to, const std::string& prefix) {
  const std::string out = call("Cast", {value}, prefix);
  onnx::NodeProto& node = *graph_->mutable_node(graph_->node_size() - 1);
  set_integer(node, "to", info(to).onnx_id);
  if (contains(kFloat8, to)) {  // a Program that saturates has a clamp before
    set_integer(node, "saturate", 0);
    need(19);
  }
  return out;
}

std::string NodeWriter::instruction(const Program& p, const Instruction& in, const std::vector<std::string>& operands,
                                    const std::string& prefix) {
  const auto is_scalar_constant = [&](int operand) {
    return operand >= p.first_constant() && operand < p.first_result();
  };
  std::vector<std::string> args;
  for (const int16_t operand : {in.a, in.b, in.c}) {
    if (operand < 0) continue;
    std::string arg = operands[size_t(operand)];
    if (!mixes_types(in.op) && p.dtype_of(operand) != in.dtype) arg = cast(arg, in.dtype, prefix);
    args.push_back(std::move(arg));
  }
  const auto one = [&] { return scalar(in.dtype, 1, 1); };
  switch (in.op) {
    case ScalarOp::kCast: {
      // A Program's cast saturates; ONNX leaves what is out of range open, and ONNX Runtime wraps it.
      const DType from = p.dtype_of(in.a), to = in.dtype;
      const bool narrow = to == DType::kU8 || to == DType::kI8 || to == DType::kU16 || to == DType::kI16;
      if (from == DType::kF32 && narrow) {
        const double levels = to == DType::kU8 || to == DType::kI8 ? 256 : 65536;
        const double least = to == DType::kU8 || to == DType::kU16 ? 0 : -levels / 2;
        args[0] = call("Clip", {args[0], scalar(from, least, 0), scalar(from, least + levels - 1, 0)}, prefix);
      }
      return cast(args[0], to, prefix);
    }
    case ScalarOp::kRsqrt:
      return call("Reciprocal", {call("Sqrt", args, prefix)}, prefix);
    case ScalarOp::kSquare:
      return call("Mul", {args[0], args[0]}, prefix);
    case ScalarOp::kErfc:
      return call("Sub", {one(), call("Erf", args, prefix)}, prefix);
    case ScalarOp::kFma:
      return call("Add", {call("Mul", {args[0], args[1]}, prefix), args[2]}, prefix);
    case ScalarOp::kClamp:
      // Clip takes bounds of rank 0 only.
      if (is_scalar_constant(in.b) && is_scalar_constant(in.c)) return call("Clip", args, prefix);
      return call("Min", {call("Max", {args[0], args[1]}, prefix), args[2]}, prefix);
    case ScalarOp::kMod:
      if (is_float(in.dtype)) {  // Mod of floats has the sign of the dividend only
        const std::string whole = call("Floor", {call("Div", {args[0], args[1]}, prefix)}, prefix);
        return call("Sub", {args[0], call("Mul", {whole, args[1]}, prefix)}, prefix);
      }
      return call("Mod", args, prefix);
    case ScalarOp::kFmod: {
      const std::string out = call("Mod", args, prefix);
      set_integer(*graph_->mutable_node(graph_->node_size() - 1), "fmod", 1);
      return out;
    }
    case ScalarOp::kShiftLeft:
    case ScalarOp::kShiftRight: {
      const std::string out = call("BitShift", args, prefix);
      onnx::AttributeProto& direction = *graph_->mutable_node(graph_->node_size() - 1)->add_attribute();
      direction.set_name("direction");
      direction.set_type(onnx::AttributeProto::STRING);
      direction.set_s(in.op == ScalarOp::kShiftLeft ? "LEFT" : "RIGHT");
      return out;
    }
    default:
      break;
  }
  if (is_bitwise(in.op)) need(18);
  const auto* found =
      std::find_if(std::begin(kDirect), std::end(kDirect), [&](const StandardOp& s) { return s.op == in.op; });
  if (found == std::end(kDirect))
    fail(ErrorCode::kUnsupported, "instruction '{}' has no form in ONNX: unsupported", info(in.op).name);
  return call(std::string(found->name), std::move(args), prefix);
}

void NodeWriter::program(const Program& p, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs, const std::string& prefix,
                         const std::vector<Extents>* input_shapes, const Extents* shape) {
  const int first_node = graph_->node_size();
  std::vector<std::string> operands = inputs;
  for (const ProgramConstant& c : p.constants) operands.push_back(scalar(c.dtype, c.f, c.i));
  for (const Instruction& in : p.code) operands.push_back(instruction(p, in, operands, prefix));
  const auto depends = dependences(p);
  for (size_t o = 0; o < p.outputs.size() && o < outputs.size(); ++o) {
    if (outputs[o].empty()) continue;
    const auto result = size_t(p.outputs[o]);
    Extents own;
    for (size_t i = 0; input_shapes && i < inputs.size(); ++i) {
      if (depends[result][i]) own = broadcast(own, (*input_shapes)[i]);
    }
    if (input_shapes && shape && own != *shape) {
      node("Expand", {operands[result], integers(*shape)}, {outputs[o]}, fresh(prefix + "/Expand"));
    } else if (int(result) >= p.first_result() && rename(first_node, operands[result], outputs[o])) {
      std::replace(operands.begin(), operands.end(), std::string(operands[result]), outputs[o]);
    } else {
      node("Identity", {operands[result]}, {outputs[o]}, fresh(prefix + "/Identity"));
    }
  }
}

// The last node of a program writes its output's name itself; false if the value is an output already.
bool NodeWriter::rename(int first_node, const std::string& from, const std::string& to) {
  if (!names_.count(from) || renamed_.count(from)) return false;
  for (int i = first_node; i < graph_->node_size(); ++i) {
    onnx::NodeProto& each = *graph_->mutable_node(i);
    for (std::string& input : *each.mutable_input()) {
      if (input == from) input = to;
    }
    if (each.output(0) == from) each.set_output(0, to);
  }
  renamed_.insert(to);
  return true;
}

}  // namespace ridgeline
