// Operations that take several nodes, or other nodes by opset: written as exporters write them.
#include <cmath>

#include "formats/make/builder.h"

namespace ridgeline::make {

std::string Builder::unsqueeze(const std::string& scope, const std::string& x, int64_t axis) {
  return node("Unsqueeze", scope, {x, list({axis})});
}

std::string Builder::reduce_mean(const std::string& scope, const std::string& x, int64_t axis) {
  if (opset() < 18) return node("ReduceMean", scope, {x}, {{"axes", Ints{axis}}, {"keepdims", int64_t{1}}});
  return node("ReduceMean", scope, {x, list({axis})}, {{"keepdims", int64_t{1}}});
}

std::string Builder::slice(const std::string& scope, const std::string& x, int64_t axis, const std::string& from,
                           const std::string& to) {
  return node("Slice", scope, {x, from, to, list({axis}), list({1})});
}

std::string Builder::layer_norm(const std::string& scope, const std::string& x, int64_t size, float epsilon) {
  const std::string scale = uniform(parameter(scope, "weight"), {size}, 0.5f, 1.5f);
  const std::string shift = normal(parameter(scope, "bias"), {size}, 0.1f);
  if (opset() >= 17) {
    return node("LayerNormalization", scope, {x, scale, shift}, {{"axis", int64_t{-1}}, {"epsilon", epsilon}});
  }
  const std::string centred = node("Sub", scope, {x, reduce_mean(scope, x, -1)});
  const std::string variance = reduce_mean(scope, node("Pow", scope, {centred, number(2)}), -1);
  const std::string deviation = node("Sqrt", scope, {node("Add", scope, {variance, number(epsilon)})});
  return node("Add", scope, {node("Mul", scope, {node("Div", scope, {centred, deviation}), scale}), shift});
}

std::string Builder::hard_swish(const std::string& scope, const std::string& x) {
  if (opset() >= 14) return node("HardSwish", scope, {x});
  return node("Mul", scope, {x, node("HardSigmoid", scope, {x}, {{"alpha", 1.0f / 6}, {"beta", 0.5f}})});
}

std::string Builder::gelu(const std::string& scope, const std::string& x) {
  const std::string erf = node("Erf", scope, {node("Div", scope, {x, number(std::sqrt(2.0f))})});
  const std::string cdf2 = node("Add", scope, {erf, number(1)});
  return node("Mul", scope, {node("Mul", scope, {x, cdf2}), number(0.5f)});
}

std::string Builder::linear(const std::string& scope, const std::string& x, int64_t from, int64_t to, float gain) {
  const std::string w = normal(parameter(scope, "weight_t"), {from, to}, gain / std::sqrt(float(from)));
  const std::string bias = normal(parameter(scope, "bias"), {to}, 0.05f);
  return node("Add", scope, {bias, node("MatMul", scope, {x, w})});
}

std::string Builder::extent(const std::string& scope, const std::string& x, int64_t axis) {
  return node("Gather", scope, {node("Shape", scope, {x}), index(axis)}, {{"axis", int64_t{0}}});
}

std::string Builder::extent_list(const std::string& scope, const std::string& x, int64_t axis) {
  return unsqueeze(scope, extent(scope, x, axis), 0);
}

std::string Builder::reshape(const std::string& scope, const std::string& x, const std::vector<MakeDim>& dims) {
  Ints values;
  bool symbolic = false;
  for (const MakeDim& d : dims) {
    values.push_back(d.value);
    symbolic |= d.is_symbolic();
  }
  if (!symbolic) return node("Reshape", scope, {x, list(values)});
  Names parts;
  for (size_t i = 0; i < dims.size(); ++i) {
    parts.push_back(dims[i].is_symbolic() ? extent_list(scope, x, int64_t(i)) : list({dims[i].value}));
  }
  return node("Reshape", scope, {x, node("Concat", scope, parts, {{"axis", int64_t{0}}})});
}

}  // namespace ridgeline::make
