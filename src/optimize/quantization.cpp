#include "optimize/quantization.h"

#include <algorithm>
#include <cmath>

#include "ir/infer.h"

namespace ridgeline {
namespace {

// Within these a product of two scales, a quotient by one and the products of both with whole numbers are normal.
constexpr float kLeastScale = 0x1p-60f, kMostScale = 0x1p60f;

int emit(Program& p, ScalarOp op, DType dtype, int a, int b = -1) {
  p.code.push_back({op, dtype, int16_t(a), int16_t(b)});
  return p.operands() - 1;
}

// The scale and the zero point as operands: numbers of the program, or inputs. -1: a zero point of 0.
struct Numbers {
  int scale = -1, zero = -1;
};
Numbers add_numbers(Program& p, const Scaling& scaling, int rank, std::vector<Tensor>& more) {
  const bool shifted = std::any_of(scaling.zero.begin(), scaling.zero.end(), [](int32_t z) { return z != 0; });
  if (scaling.single()) {
    p.constants.push_back({DType::kF32, double(scaling.scale[0]), 0});
    if (shifted) p.constants.push_back({DType::kF32, double(scaling.zero[0]), 0});
    return {p.first_constant(), shifted ? p.first_constant() + 1 : -1};
  }
  Numbers n;
  p.inputs.push_back({"scale", DType::kF32});
  more.push_back(along_axis(scaling.scale, scaling.axis, rank));
  n.scale = int(p.inputs.size()) - 1;
  if (!shifted) return n;
  p.inputs.push_back({"zero", DType::kF32});
  more.push_back(along_axis({scaling.zero.begin(), scaling.zero.end()}, scaling.axis, rank));
  n.zero = int(p.inputs.size()) - 1;
  return n;
}

}  // namespace

bool is_quantize(const Node& node) { return node.is("QuantizeLinear"); }
bool is_dequantize(const Node& node) { return node.is("DequantizeLinear"); }

std::optional<Scaling> scaling_of(const Graph& graph, const Node& node, std::string& why) {
  const auto no = [&](std::string reason) {
    why = std::move(reason);
    return std::nullopt;
  };
  const bool quantizes = is_quantize(node);
  const ValueId real = quantizes ? node.input(0) : node.output(), narrow = quantizes ? node.output() : node.input(0);
  if (node.program || !graph.value(node.input(0)).info.shape) return no("its shape is not known");
  if (graph.value(real).dtype() != DType::kF32)
    return no(fmt::format("it stands between {} and {}: f32 is wanted", name(graph.value(real).dtype()),
                          name(graph.value(narrow).dtype())));
  Scaling s;
  s.type = graph.value(narrow).dtype();
  if (!is_byte(s.type)) return no(fmt::format("its quantized type is {}: u8 or i8 is wanted", name(s.type)));
  if (schema_integer(*node.op, node.attributes, "block_size") != 0) return no("it has a scale for each block");
  if (quantizes && schema_integer(*node.op, node.attributes, "precision") > 1)
    return no("it divides in another type than f32");
  const Tensor *scale = graph.constant(node.input(1)), *zero = graph.constant(node.input(2));
  if (!scale || scale->dtype() != DType::kF32) return no("its scale is no constant in f32");
  if (node.input(2) != kNoValue && !zero) return no("its zero point is no constant");
  for (int64_t k = 0; k < scale->elements(); ++k) {
    s.scale.push_back(scale->as<float>()[k]);
    s.zero.push_back(zero ? int32_t(zero->i64(zero->elements() == 1 ? 0 : k)) : 0);
    if (!(s.scale.back() >= kLeastScale && s.scale.back() <= kMostScale))
      return no(fmt::format("its scale {} is not within 2^-60 and 2^60", s.scale.back()));
  }
  if (s.scale.empty()) return no("its scale is empty");
  if (scale->rank() == 0 || s.scale.size() == 1) return s;
  const int64_t axis = schema_integer(*node.op, node.attributes, "axis");
  s.axis = int(axis < 0 ? axis + graph.value(node.input(0)).rank() : axis);
  return s;
}

Tensor along_axis(const std::vector<float>& numbers, int axis, int rank) {
  Extents shape = {int64_t(numbers.size())};
  for (int a = axis + 1; a < rank; ++a) shape.push_back(1);
  Tensor t(DType::kF32, shape);
  std::copy(numbers.begin(), numbers.end(), t.as<float>());
  return t;
}

Program quantize_program(const Scaling& scaling, int rank, std::vector<Tensor>& more) {
  Program p;
  p.inputs = {{"x", DType::kF32}};
  const Numbers n = add_numbers(p, scaling, rank, more);
  int v = emit(p, ScalarOp::kDiv, DType::kF32, 0, n.scale);
  v = emit(p, ScalarOp::kRound, DType::kF32, v);
  if (n.zero >= 0) v = emit(p, ScalarOp::kAdd, DType::kF32, v, n.zero);
  p.outputs = {emit(p, ScalarOp::kCast, scaling.type, v)};
  return p;
}

Program dequantize_program(const Scaling& scaling, int rank, std::vector<Tensor>& more) {
  Program p;
  p.inputs = {{"q", scaling.type}};
  const Numbers n = add_numbers(p, scaling, rank, more);
  int v = emit(p, ScalarOp::kCast, DType::kF32, 0);
  if (n.zero >= 0) v = emit(p, ScalarOp::kSub, DType::kF32, v, n.zero);
  p.outputs = {emit(p, ScalarOp::kMul, DType::kF32, v, n.scale)};
  return p;
}

}  // namespace ridgeline
