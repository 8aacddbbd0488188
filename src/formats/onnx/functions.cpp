#include "formats/onnx/functions.h"

#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <functional>
#include <type_traits>
#include <unordered_set>

#include "formats/onnx/model_file.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

// FunctionProto.attribute_proto (field 11), attributes with a default, is younger than the schema file of Debian 12:
// protobuf keeps the bytes of fields that it does not know.
std::map<std::string, onnx::AttributeProto> defaults_of(const onnx::FunctionProto& function) {
  constexpr uint32_t kTag = 11 << 3 | 2;
  std::map<std::string, onnx::AttributeProto> out;
  const std::string& bytes = function.unknown_fields();
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()), int(bytes.size()));
  while (const uint32_t tag = stream.ReadTag()) {
    std::string field;
    uint32_t length = 0;
    uint64_t number = 0;
    switch (tag & 7) {
      case 0:
        if (!stream.ReadVarint64(&number)) return out;
        break;
      case 1:
        if (!stream.Skip(8)) return out;
        break;
      case 5:
        if (!stream.Skip(4)) return out;
        break;
      case 2:
        if (!stream.ReadVarint32(&length) || length > bytes.size() || !stream.ReadString(&field, int(length)))
          return out;
        break;
      default:
        return out;
    }
    onnx::AttributeProto attribute;
    if (tag == kTag && attribute.ParseFromString(field)) out[attribute.name()] = std::move(attribute);
  }
  return out;
}

constexpr int64_t kMessageBytes = 256;  // what a message takes beside its fields

/// Calls `body` with every subgraph of the node.
template <typename Node, typename Body>
void for_subgraphs(Node& node, const Body& body) {
  if constexpr (std::is_const_v<Node>) {
    for (const onnx::AttributeProto& attribute : node.attribute()) {
      if (attribute.has_g()) body(attribute.g());
      for (const onnx::GraphProto& graph : attribute.graphs()) body(graph);
    }
  } else {
    for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
      if (attribute.has_g()) body(*attribute.mutable_g());
      for (onnx::GraphProto& graph : *attribute.mutable_graphs()) body(graph);
    }
  }
}

// Names that `graph` or a graph inside it reads from around it.
void find_captured(const onnx::GraphProto& graph, std::unordered_set<std::string>& seen,
                   std::vector<std::string>& found) {
  std::unordered_set<std::string> own;
  for (const auto& input : graph.input()) own.insert(input.name());
  for (const auto& initializer : graph.initializer()) own.insert(initializer.name());
  for (const onnx::NodeProto& node : graph.node()) own.insert(node.output().begin(), node.output().end());
  const auto read = [&](const std::string& name) {
    if (!name.empty() && !own.count(name) && seen.insert(name).second) found.push_back(name);
  };
  for (const onnx::NodeProto& node : graph.node()) {
    for (const std::string& input : node.input()) read(input);
    std::vector<std::string> inner;
    std::unordered_set<std::string> inner_seen;
    for_subgraphs(node, [&](const onnx::GraphProto& each) { find_captured(each, inner_seen, inner); });
    for (const std::string& name : inner) read(name);
  }
  for (const auto& output : graph.output()) read(output.name());
}

std::string name_of(const onnx::NodeProto& node, int index) {
  return node.name().empty() ? node.op_type() + "_" + std::to_string(index) : node.name();
}

}  // namespace

std::vector<std::string> captured_names(const onnx::NodeProto& node) {
  std::vector<std::string> found;
  std::unordered_set<std::string> seen;
  for_subgraphs(node, [&](const onnx::GraphProto& graph) { find_captured(graph, seen, found); });
  return found;
}

std::string normal_domain(const std::string& domain) { return domain == "ai.onnx" ? "" : domain; }

Opsets opsets_of(const google::protobuf::RepeatedPtrField<onnx::OperatorSetIdProto>& imports) {
  Opsets out;
  for (const auto& import : imports) {
    int64_t& version = out[normal_domain(import.domain())];
    version = std::max(version, import.version());
  }
  return out;
}

LocalFunctions::LocalFunctions(onnx::ModelProto& model, const std::string& file)
    : file_(file), opsets_(opsets_of(model.opset_import())) {
  for (const onnx::FunctionProto& function : model.functions()) {
    Function entry{&function, opsets_of(function.opset_import()), defaults_of(function)};
    entry.opsets.insert(opsets_.begin(), opsets_.end());  // what it does not import itself
    if (!functions_.emplace(std::pair(normal_domain(function.domain()), function.name()), std::move(entry)).second) {
      fail(ErrorCode::kBadModel, "{}: two functions are named {} in domain {}", file_, quote(function.name()),
           quote(function.domain()));
    }
  }
}

std::vector<SourceNode> LocalFunctions::inlined(onnx::GraphProto& graph, const Opsets& opsets,
                                                const std::string& prefix) {
  nodes_.clear();
  for (int i = 0; i < graph.node_size(); ++i) {
    onnx::NodeProto* node = graph.mutable_node(i);
    add(node, opsets, prefix + name_of(*node, i), 0);
  }
  return std::move(nodes_);
}

void LocalFunctions::add(onnx::NodeProto* node, const Opsets& opsets, const std::string& name, int depth) {
  const auto found = functions_.find({normal_domain(node->domain()), node->op_type()});
  if (found != functions_.end()) return inline_call(*node, found->second, name, depth);
  if (node->input_size() > ModelLimits::kNodeInputs || node->output_size() > ModelLimits::kNodeInputs) {
    fail(ErrorCode::kBadModel, "{}: node {} has {} inputs and {} outputs; at most {} are allowed", file_, quote(name),
         node->input_size(), node->output_size(), ModelLimits::kNodeInputs);
  }
  if (++count_ > ModelLimits::kNodes) {
    fail(ErrorCode::kBadModel, "{}: more than {} nodes once its functions are inlined", file_, ModelLimits::kNodes);
  }
  nodes_.push_back({node, &opsets, name});
}

void LocalFunctions::inline_call(const onnx::NodeProto& call, const Function& function, const std::string& name,
                                 int depth) {
  const onnx::FunctionProto& body = *function.proto;
  const auto refuse = [&](const std::string& reason) {
    fail(ErrorCode::kBadModel, "{}: node {} calls the local function {}: {}", file_, quote(name), quote(body.name()),
         reason);
  };
  if (depth >= ModelLimits::kFunctionDepth) refuse("calls nest too deep; does it call itself?");
  if (call.input_size() > body.input_size())
    refuse(fmt::format("{} inputs for {}", call.input_size(), body.input_size()));
  if (call.output_size() > body.output_size())
    refuse(fmt::format("{} outputs for {}", call.output_size(), body.output_size()));

  std::map<std::string, const onnx::AttributeProto*> given;
  for (const auto& [key, value] : function.defaults) given[key] = &value;
  for (const onnx::AttributeProto& attribute : call.attribute()) {
    const bool declared =
        function.defaults.count(attribute.name()) ||
        std::find(body.attribute().begin(), body.attribute().end(), attribute.name()) != body.attribute().end();
    if (!declared) refuse(fmt::format("it has no attribute {}", quote(attribute.name())));
    given[attribute.name()] = &attribute;
  }

  // The first output's name is unique in the model, unlike the node's.
  const std::string stem = (call.output_size() > 0 && !call.output(0).empty() ? call.output(0) : name) + "/";
  std::map<std::string, std::string> names;
  for (int i = 0; i < body.input_size(); ++i) names[body.input(i)] = i < call.input_size() ? call.input(i) : "";
  std::vector<std::pair<std::string, std::string>> copies;  // outputs that are inputs, or written twice: by Identity
  for (int i = 0; i < body.output_size(); ++i) {
    const std::string actual = i < call.output_size() ? call.output(i) : "";
    const auto [entry, fresh] = names.emplace(body.output(i), actual.empty() ? stem + body.output(i) : actual);
    if (!fresh && !actual.empty()) copies.emplace_back(entry->second, actual);
  }
  const auto renamed = [&](const std::string& inner) -> std::string {
    if (inner.empty()) return inner;
    const auto found = names.find(inner);
    return found != names.end() ? found->second : stem + inner;
  };

  // A node of the body, the nodes of its subgraphs among them: names and attributes are the call's.
  const std::function<void(onnx::NodeProto&)> settle = [&](onnx::NodeProto& node) {
    for (std::string& input : *node.mutable_input()) input = renamed(input);
    for (std::string& output : *node.mutable_output()) output = renamed(output);
    for (int a = node.attribute_size() - 1; a >= 0; --a) {
      onnx::AttributeProto& attribute = *node.mutable_attribute(a);
      if (attribute.ref_attr_name().empty()) continue;
      const std::string key = attribute.name();
      const auto source = given.find(attribute.ref_attr_name());
      if (source == given.end()) {  // absent in the call: absent in the body
        node.mutable_attribute()->DeleteSubrange(a, 1);
        continue;
      }
      attribute = *source->second;
      attribute.set_name(key);
    }
    for_subgraphs(node, [&](onnx::GraphProto& graph) {
      for (auto& input : *graph.mutable_input()) input.set_name(renamed(input.name()));
      for (auto& output : *graph.mutable_output()) output.set_name(renamed(output.name()));
      for (auto& initializer : *graph.mutable_initializer()) initializer.set_name(renamed(initializer.name()));
      for (onnx::NodeProto& inner : *graph.mutable_node()) settle(inner);
    });
  };

  const auto own = [&](const onnx::NodeProto& node) -> onnx::NodeProto* {
    copied_bytes_ += int64_t(node.ByteSizeLong()) + kMessageBytes;
    if (copied_bytes_ > ModelLimits::kInlinedBytes) {
      refuse(fmt::format("inlining copies more than {} MiB", ModelLimits::kInlinedBytes >> 20));
    }
    return &copies_.emplace_back(node);
  };
  for (int i = 0; i < body.node_size(); ++i) {
    onnx::NodeProto* node = own(body.node(i));
    settle(*node);
    add(node, function.opsets, name + "/" + name_of(*node, i), depth + 1);
  }
  for (const auto& [from, to] : copies) {
    onnx::NodeProto identity;
    identity.set_op_type("Identity");
    identity.add_input(from);
    identity.add_output(to);
    add(own(identity), opsets_, name + "/Identity", depth + 1);
  }
}

}  // namespace ridgeline
