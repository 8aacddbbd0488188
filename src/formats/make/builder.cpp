#include "formats/make/builder.h"

#include <cassert>

#include "ridgeline/error.h"

namespace ridgeline::make {

namespace {

// FNV-1a: a stream of its own for each weight, whatever order they are made in.
uint64_t hash(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325u;
  for (unsigned char c : text) h = (h ^ c) * 0x100000001b3u;
  return h;
}

void set_value_info(onnx::ValueInfoProto& info, const std::string& name, onnx::TensorProto::DataType type,
                    const std::vector<MakeDim>& dims) {
  info.set_name(name);
  auto* tensor = info.mutable_type()->mutable_tensor_type();
  tensor->set_elem_type(type);
  auto* shape = tensor->mutable_shape();
  for (const MakeDim& dim : dims) {
    if (dim.is_symbolic()) {
      shape->add_dim()->set_dim_param(dim.symbol);
    } else {
      shape->add_dim()->set_dim_value(dim.value);
    }
  }
}

void set_attribute(onnx::AttributeProto& to, const Attribute& attribute) {
  to.set_name(attribute.first);
  if (const auto* i = std::get_if<int64_t>(&attribute.second)) {
    to.set_type(onnx::AttributeProto::INT);
    to.set_i(*i);
  } else if (const auto* f = std::get_if<float>(&attribute.second)) {
    to.set_type(onnx::AttributeProto::FLOAT);
    to.set_f(*f);
  } else if (const auto* ints = std::get_if<Ints>(&attribute.second)) {
    to.set_type(onnx::AttributeProto::INTS);
    for (int64_t v : *ints) to.add_ints(v);
  } else {
    to.set_type(onnx::AttributeProto::STRING);
    to.set_s(std::get<std::string>(attribute.second));
  }
}

}  // namespace

Builder::Builder(std::string_view name, const MakeOptions& options) : options_(options) {
  if (options.opset < 13 || options.opset > 21) {
    fail(ErrorCode::kUsage, "make {}: opset {} is not offered; 13 to 21 are", name, options.opset);
  }
  model_.set_ir_version(options.opset <= 18 ? 8 : options.opset <= 20 ? 9 : 10);
  model_.set_producer_name("ridgeline make");
  model_.add_opset_import()->set_version(options.opset);
  model_.mutable_graph()->set_name(std::string(name));
}

std::string Builder::input(const std::string& name, onnx::TensorProto::DataType type,
                           const std::vector<MakeDim>& dims) {
  set_value_info(*model_.mutable_graph()->add_input(), name, type, dims);
  return name;
}

void Builder::output(const std::string& name, const std::string& value, const std::vector<MakeDim>& dims) {
  // The producer writes under the output's name, as exporters have it, instead of through an Identity.
  auto& nodes = *model_.mutable_graph()->mutable_node();
  for (auto& node : nodes) {
    for (auto& s : *node.mutable_output()) {
      if (s == value) s = name;
    }
    for (auto& s : *node.mutable_input()) {
      if (s == value) s = name;
    }
  }
  set_value_info(*model_.mutable_graph()->add_output(), name, onnx::TensorProto::FLOAT, dims);
}

std::string Builder::node(const char* op, const std::string& scope, const Names& inputs, Attributes attributes) {
  auto& node = *model_.mutable_graph()->add_node();
  std::string name = scope + "/" + op;
  const int uses = uses_of_name_[name]++;
  if (uses > 0) name += "_" + std::to_string(uses);
  node.set_name(name);
  node.set_op_type(op);
  for (const std::string& s : inputs) node.add_input(s);
  for (const Attribute& a : attributes) set_attribute(*node.add_attribute(), a);
  node.add_output(name + "_output_0");
  return node.output(0);
}

std::string Builder::add_weight(Weight weight) {
  weight.seed = hash(weight.name) ^ (options_.seed * 0x9e3779b97f4a7c15u);
  const auto [place, fresh] = weight_at_.emplace(weight.name, weights_.size());
  assert(fresh && "two weights of one name");
  weights_.push_back(std::move(weight));
  return place->first;
}

std::string Builder::normal(const std::string& name, Ints dims, float deviation, float mean) {
  return add_weight({.name = name, .dims = std::move(dims), .kind = Weight::Kind::kNormal, .a = mean, .b = deviation});
}

std::string Builder::uniform(const std::string& name, Ints dims, float low, float high) {
  return add_weight({.name = name, .dims = std::move(dims), .kind = Weight::Kind::kUniform, .a = low, .b = high});
}

std::string Builder::floats(const std::string& name, Ints dims, std::vector<float> values) {
  return add_weight(
      {.name = name, .dims = std::move(dims), .kind = Weight::Kind::kFloats, .floats = std::move(values)});
}

std::string Builder::ints(const std::string& name, Ints values) {
  const auto count = int64_t(values.size());
  return add_weight({.name = name, .dims = {count}, .kind = Weight::Kind::kInts, .ints = std::move(values)});
}

std::string Builder::index(int64_t value) {
  const std::string name = "index_" + std::to_string(value);
  if (weight_at_.contains(name)) return name;
  return add_weight({.name = name, .dims = {}, .kind = Weight::Kind::kInts, .ints = {value}});
}

std::string Builder::number(float value) {
  const std::string name = fmt::format("number_{}", value);
  if (weight_at_.contains(name)) return name;
  return add_weight({.name = name, .dims = {}, .kind = Weight::Kind::kFloats, .floats = {value}});
}

std::string Builder::list(const Ints& values) {
  std::string name = "list";
  for (int64_t v : values) name += "_" + std::to_string(v);
  return weight_at_.contains(name) ? name : ints(name, values);
}

std::string Builder::parameter(const std::string& scope, const char* leaf) {
  std::string name = scope.substr(1);
  for (char& c : name) c = c == '/' ? '.' : c;
  return name + "." + leaf;
}

const Weight& Builder::weight(const std::string& name) const { return weights_[weight_at_.at(name)]; }

}  // namespace ridgeline::make
