#include "ir/builder.h"

#include <algorithm>
#include <cassert>

namespace ridgeline {

Builder::Builder(Graph& graph, const OpSchema& op, const Attributes& attributes, std::vector<ValueId> inputs)
    : graph_(graph), op_(op), attributes_(attributes), inputs_(std::move(inputs)) {}

int64_t Builder::integer(std::string_view name) const { return schema_integer(op_, attributes_, name); }
double Builder::number(std::string_view name) const { return schema_number(op_, attributes_, name); }
std::string Builder::string(std::string_view name) const { return schema_string(op_, attributes_, name); }
std::vector<int64_t> Builder::integers(std::string_view name, std::vector<int64_t> fallback) const {
  return attributes_.integers(name, std::move(fallback));
}

std::vector<int64_t> Builder::values(V x) const {
  const ValueInfo& info = graph_.value(x.id).info;
  if (info.constant && !is_float(info.dtype)) return info.constant.to_i64();
  std::vector<int64_t> out;
  if (info.values)
    for (const Dim& d : *info.values)
      if (d.known()) out.push_back(d.value());
  return out;
}

V Builder::number_like(std::string_view attribute, V x) {
  // The name marks the hole: the matcher reads "@epsilon" as any number.
  return {this, graph_.add_constant(graph_.fresh_name("@" + std::string(attribute)),
                                    Tensor::scalar_of(dtype(x), number(attribute)))};
}

V Builder::constant(double value, V like) {
  return {this, graph_.add_constant({}, Tensor::scalar_of(dtype(like), value))};
}

V Builder::integers_constant(std::vector<int64_t> values) {
  const int64_t count = int64_t(values.size());
  return {this, graph_.add_constant({}, Tensor::from<int64_t>({count}, values))};
}

std::vector<V> Builder::ops(std::string_view name, std::vector<V> inputs, int outputs, Attributes attributes) {
  const OpSchema* schema = find_op(name);
  if (!schema) schema = find_op(name, "ridgeline");
  if (!schema) schema = find_op(name, "com.microsoft");
  if (!schema)
    fail(ErrorCode::kUnsupported, "unsupported: the decomposition of {} needs {}, which is not declared", op_.name,
         name);
  std::vector<ValueId> ids;
  for (const V& v : inputs) ids.push_back(v.id);
  const NodeId node = graph_.add_node(*schema, std::move(ids), std::move(attributes), outputs);
  std::vector<V> results;
  for (ValueId v : graph_.node(node).outputs) results.push_back({this, v});
  return results;
}

V Builder::op(std::string_view name, std::vector<V> inputs, Attributes attributes) {
  return ops(name, std::move(inputs), 1, std::move(attributes))[0];
}

V Builder::transpose(V a, std::vector<int64_t> perm) {
  Attributes attributes;
  attributes.set("perm", std::move(perm));
  return op("Transpose", {a}, std::move(attributes));
}

V Builder::reshape(V a, std::vector<int64_t> shape) { return op("Reshape", {a, integers_constant(std::move(shape))}); }

V Builder::cast(V a, DType to) {
  if (dtype(a) == to) return a;
  Attributes attributes;
  attributes.set("to", int64_t(info(to).onnx_id));
  return op("Cast", {a}, std::move(attributes));
}

V Builder::reduce(std::string_view op_name, V a, std::vector<int64_t> axes, bool keepdims) {
  Attributes attributes;
  attributes.set("keepdims", int64_t(keepdims));
  return op(op_name, {a, integers_constant(std::move(axes))}, std::move(attributes));
}

V Builder::softmax(V a, int64_t axis) {
  Attributes attributes;
  attributes.set("axis", axis);
  return op("Softmax", {a}, std::move(attributes));
}

Gradient::Gradient(Graph& graph, const OpSchema& op, const Attributes& attributes, std::vector<ValueId> inputs,
                   std::vector<ValueId> outputs, std::vector<ValueId> output_gradients)
    : Builder(graph, op, attributes, inputs),
      outputs_(std::move(outputs)),
      output_gradients_(std::move(output_gradients)),
      input_gradients_(inputs.size(), kNoValue) {}

void Gradient::input_gradient(int input, V value) { input_gradients_[size_t(input)] = value.id; }

V Gradient::unbroadcast(V value, V like) {
  const Shape from = shape(value), to = shape(like);
  std::vector<int64_t> dropped, kept;
  const size_t extra = from.size() - to.size();
  for (size_t a = 0; a < extra; ++a) dropped.push_back(int64_t(a));
  for (size_t a = 0; a < to.size(); ++a)
    if (to[a].is(1) && !from[a + extra].is(1)) kept.push_back(int64_t(a + extra));
  if (!kept.empty()) value = reduce("ReduceSum", value, kept, true);
  if (!dropped.empty()) value = reduce("ReduceSum", value, dropped, false);
  return value;
}

Graph decompose(const OpSchema& op, const Attributes& attributes, const std::vector<ValueInfo>& inputs, int outputs,
                int spelling) {
  assert(spelling < op.decompose.size());
  Graph graph;
  graph.name = std::string(op.name);
  std::vector<ValueId> ids;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].dtype == DType::kNone) {
      ids.push_back(kNoValue);
      continue;
    }
    const std::string_view name = op.inputs[std::min(int(i), op.inputs.size() - 1)].name;
    const ValueId v = graph.add_input(int(i) < op.inputs.size() ? std::string(name) : fmt::format("{}{}", name, i),
                                      inputs[i].dtype, inputs[i].shape);
    graph.value(v).info.values = inputs[i].values;
    // Shape-like contents (axes, sizes) decide the decomposition's structure; others stay holes.
    if (inputs[i].constant && !is_float(inputs[i].dtype) && inputs[i].constant.rank() <= 1 &&
        !graph.value(v).info.values) {
      std::vector<Dim> content;
      for (int64_t x : inputs[i].constant.to_i64()) content.push_back(x);
      graph.value(v).info.values = std::move(content);
    }
    ids.push_back(v);
  }
  Builder builder(graph, op, attributes, ids);
  op.decompose[spelling](builder);
  for (int o = 0; o < outputs && o < int(builder.results().size()); ++o)
    graph.mark_output(builder.results()[size_t(o)]);
  return graph;
}

}  // namespace ridgeline
