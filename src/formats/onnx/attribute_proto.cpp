#include "formats/onnx/attribute_proto.h"

#include "formats/onnx/model_file.h"
#include "formats/onnx/tensor_proto.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

using Proto = onnx::AttributeProto;
using SpecType = AttributeSpec::Type;

// The type a value has by what is filled in: files before IR version 2 do not state it.
Proto::AttributeType type_by_content(const Proto& a) {
  if (a.has_f()) return Proto::FLOAT;
  if (a.has_i()) return Proto::INT;
  if (a.has_s()) return Proto::STRING;
  if (a.has_t()) return Proto::TENSOR;
  if (a.has_g()) return Proto::GRAPH;
  if (a.has_sparse_tensor()) return Proto::SPARSE_TENSOR;
  if (a.has_tp()) return Proto::TYPE_PROTO;
  if (a.floats_size()) return Proto::FLOATS;
  if (a.ints_size()) return Proto::INTS;
  if (a.strings_size()) return Proto::STRINGS;
  if (a.tensors_size()) return Proto::TENSORS;
  if (a.graphs_size()) return Proto::GRAPHS;
  if (a.sparse_tensors_size()) return Proto::SPARSE_TENSORS;
  if (a.type_protos_size()) return Proto::TYPE_PROTOS;
  return Proto::UNDEFINED;
}

AttributeValue take_value(Proto& a, ExternalData& external) {
  const Proto::AttributeType content = type_by_content(a);
  const Proto::AttributeType type = a.type() == Proto::UNDEFINED ? content : a.type();
  const std::string name = quote(a.name());
  if (content != Proto::UNDEFINED && content != type) {  // nothing filled in: zero, or an empty list
    fail(ErrorCode::kBadModel, "attribute {} holds a value of another type than it states", name);
  }
  switch (type) {
    case Proto::FLOAT:
      return double(a.f());
    case Proto::INT:
      return int64_t(a.i());
    case Proto::STRING:
      if (!is_utf8(a.s())) fail(ErrorCode::kBadModel, "attribute {} is no UTF-8", name);
      return a.s();
    case Proto::FLOATS:
      return std::vector<double>(a.floats().begin(), a.floats().end());
    case Proto::INTS:
      return std::vector<int64_t>(a.ints().begin(), a.ints().end());
    case Proto::STRINGS:
      for (const std::string& s : a.strings()) {
        if (!is_utf8(s)) fail(ErrorCode::kBadModel, "attribute {} is no UTF-8", name);
      }
      return std::vector<std::string>(a.strings().begin(), a.strings().end());
    case Proto::TENSOR:
      return take_tensor(*a.mutable_t(), name, external);
    case Proto::GRAPH:
    case Proto::GRAPHS:
      fail(ErrorCode::kUnsupported, "subgraphs (attribute {}) are unsupported", name);
    case Proto::UNDEFINED:
      fail(ErrorCode::kBadModel, "attribute {} has no value", name);
    default:
      fail(ErrorCode::kUnsupported, "attribute {}: lists of tensors, sparse tensors and types are unsupported", name);
  }
}

std::string_view type_name(SpecType type) {
  constexpr std::string_view kNames[] = {"an integer", "a float", "a string", "integers",
                                         "floats",     "strings", "a tensor", "a graph"};
  return kNames[size_t(type)];
}

SpecType type_of(const AttributeValue& value) {
  constexpr SpecType kTypes[] = {SpecType::kInt,    SpecType::kFloat,   SpecType::kString, SpecType::kInts,
                                 SpecType::kFloats, SpecType::kStrings, SpecType::kTensor, SpecType::kGraph};
  static_assert(std::variant_size_v<AttributeValue> == std::size(kTypes));
  return kTypes[value.index()];
}

const AttributeSpec* find_spec(const OpSchema& op, std::string_view name) {
  for (const AttributeSpec& spec : op.attributes) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

}  // namespace

Attributes take_attributes(onnx::NodeProto& node, ExternalData& external, bool bodies) {
  Attributes out;
  for (Proto& attribute : *node.mutable_attribute()) {
    if (attribute.name().empty()) fail(ErrorCode::kBadModel, "an attribute has no name");
    if (!attribute.ref_attr_name().empty()) {
      fail(ErrorCode::kBadModel, "attribute {} refers to one of a function, outside of a function",
           quote(attribute.name()));
    }
    if (bodies && attribute.has_g()) continue;
    if (out.has(attribute.name())) fail(ErrorCode::kBadModel, "attribute {} is given twice", quote(attribute.name()));
    out.set(attribute.name(), take_value(attribute, external));
  }
  return out;
}

void check_attributes(const OpSchema& op, const Attributes& attributes) {
  for (const auto& [name, value] : attributes) {
    const AttributeSpec* spec = find_spec(op, name);
    if (!spec) {
      std::string known;
      for (const AttributeSpec& each : op.attributes) known += (known.empty() ? "" : ", ") + std::string(each.name);
      fail(ErrorCode::kUnsupported, "attribute {} is unsupported; there are: {}", quote(name),
           known.empty() ? "none" : known);
    }
    if (type_of(value) != spec->type) {
      fail(ErrorCode::kBadModel, "attribute {} has to be {}, here it is {}", quote(name), type_name(spec->type),
           type_name(type_of(value)));
    }
  }
}

void put_attribute(const std::string& name, const AttributeValue& value, const AttributeSpec* spec,
                   onnx::NodeProto& node) {
  Proto& out = *node.add_attribute();
  out.set_name(name);
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    if (spec && spec->type == SpecType::kFloat) {
      out.set_type(Proto::FLOAT);
      out.set_f(float(*integer));
    } else if (spec && spec->type == SpecType::kInts) {
      out.set_type(Proto::INTS);
      out.add_ints(*integer);
    } else {
      out.set_type(Proto::INT);
      out.set_i(*integer);
    }
  } else if (const auto* number = std::get_if<double>(&value)) {
    out.set_type(Proto::FLOAT);
    out.set_f(float(*number));
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    out.set_type(Proto::STRING);
    out.set_s(*text);
  } else if (const auto* integers = std::get_if<std::vector<int64_t>>(&value)) {
    out.set_type(Proto::INTS);
    for (const int64_t each : *integers) out.add_ints(each);
  } else if (const auto* numbers = std::get_if<std::vector<double>>(&value)) {
    out.set_type(Proto::FLOATS);
    for (const double each : *numbers) out.add_floats(float(each));
  } else if (const auto* strings = std::get_if<std::vector<std::string>>(&value)) {
    out.set_type(Proto::STRINGS);
    for (const std::string& each : *strings) out.add_strings(each);
  } else if (const auto* tensor = std::get_if<Tensor>(&value)) {
    out.set_type(Proto::TENSOR);
    put_tensor(*tensor, *out.mutable_t());
  } else {
    fail(ErrorCode::kUnsupported, "attribute '{}': writing subgraphs is unsupported", name);
  }
}

}  // namespace ridgeline
