#include "formats/onnx/export.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "formats/onnx/attribute_proto.h"
#include "formats/onnx/node_writer.h"
#include "ir/builder.h"
#include "ir/control.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

// Itself, or as a graph of others.
bool has_onnx_form(const OpSchema& op) {
  return op.domain.empty() || op.domain == "com.microsoft" || !op.decompose.empty();
}

// The operator set at which the form that a schema declares came to be, where that is after 17.
struct Since {
  std::string_view op;
  int opset;
};
constexpr Since kSince[] = {
    {"GroupNormalization", 21}, {"GridSample", 20},      {"DFT", 20},       {"ReduceL1", 18},   {"ReduceL2", 18},
    {"ReduceLogSum", 18},       {"ReduceLogSumExp", 18}, {"ReduceMax", 18}, {"ReduceMean", 18}, {"ReduceMin", 18},
    {"ReduceProd", 18},         {"ReduceSumSquare", 18}, {"Split", 18}};
// Sources: the ONNX versioning table; what helper.find_min_ir_version_for gives in the onnx package 1.23.
int64_t ir_version_of(int opset) {
  constexpr int kFirstOpset[] = {15, 19, 21, 23, 24, 25, 28};  // of IR versions 8, 9, ...
  int64_t version = 7;
  for (const int first : kFirstOpset) version += opset >= first;
  return version;
}

// `x`: the type of its first input.
int opset_of(const Node& node, DType x) {
  if (node.is("SpaceToDepth") && node.attributes.has("mode")) return 28;
  if (node.is("Mod") && is_float(x) && node.attributes.integer("fmod", 0) == 0) return 28;
  if (node.is("BitShift") && info(x).is_signed) return 28;
  for (const Since& since : kSince) {
    if (node.is(since.op)) return since.opset;
  }
  if (node.is("Pad") && node.input(3) != kNoValue) return 18;
  if (node.is("Resize")) return 18;
  return node.op->versions.empty() ? 17 : node.op->versions[0];
}

int opset_of(DType dtype) {
  if (dtype == DType::kF6E2M3 || dtype == DType::kF6E3M2) return 28;
  if (dtype == DType::kI2 || dtype == DType::kU2) return 25;
  if (dtype == DType::kF8E8M0) return 24;
  if (dtype == DType::kF4E2M1) return 23;
  if (dtype == DType::kI4 || dtype == DType::kU4) return 21;
  if (contains(kFloat8, dtype)) return 19;
  return dtype == DType::kBF16 ? 22 : 17;  // Conv, pools and trigonometric functions take bf16 since then
}

class Exporter {
 public:
  explicit Exporter(const Graph& graph) : graph_(graph), writer_(*model_.mutable_graph()) {}

  void run(const std::string& path, const ExportOptions& options) {
    model_.mutable_graph()->set_name(graph_.name.empty() ? "graph" : graph_.name);
    Names names = top_names();
    for (const NodeId id : graph_.order()) add(graph_, graph_.node(id), names);
    add_interface(names);
    model_.set_producer_name("ridgeline");
    model_.set_producer_version(options.producer_version);
    model_.set_ir_version(ir_version_of(writer_.opset()));
    auto& standard = *model_.add_opset_import();
    standard.set_domain("");
    standard.set_version(writer_.opset());
    if (uses_microsoft_) {
      auto& import = *model_.add_opset_import();
      import.set_domain("com.microsoft");
      import.set_version(1);
    }
    write_model(model_, writer_.weights(), options.external_data, path);
  }

 private:
  using Names = std::unordered_map<ValueId, std::string>;

  // The graph's own values keep their names.
  Names top_names() {
    Names names;
    for (ValueId v = 0; v < graph_.value_count(); ++v) {
      const Value& value = graph_.value(v);
      const bool live = value.is_input || value.is_output || graph_.uses(v) > 0 || value.producer != kNoNode;
      if (!live) continue;
      writer_.reserve(value.name);
      names[v] = value.name;
      writer_.need(opset_of(value.dtype()));
      if (!value.is_constant() || value.is_input || graph_.uses(v) == 0) continue;
      writer_.add_weight(value.name, value.info.constant);
      if (value.constant_id != 0) weight_names_.emplace(value.constant_id, value.name);
    }
    return names;
  }

  std::vector<std::string> names_of(const std::vector<ValueId>& values, const Names& names) {
    std::vector<std::string> out;
    for (const ValueId v : values) out.push_back(v == kNoValue ? "" : names.at(v));
    return out;
  }

  static std::optional<Extents> extents_of(const Graph& graph, ValueId value) {
    const std::optional<Shape>& shape = graph.value(value).info.shape;
    if (!shape || !known(*shape)) return std::nullopt;
    return extents(*shape);
  }

  /// Writes `node` of `graph` (the exported one, or a decomposition) as standard nodes.
  void add(const Graph& graph, const Node& node, const Names& names) {
    std::vector<std::string> inputs = names_of(node.inputs, names), outputs = names_of(node.outputs, names);
    if (node.op->is_elementwise() && (node.program || !node.op->domain.empty())) {
      add_program(graph, node, program_of(graph, node), inputs, outputs, std::nullopt);
      return;
    }
    if (!node.program) {
      add_operator(graph, node, std::move(inputs), outputs);
      return;
    }
    // An epilogue: the operator into a value of its own, then the program on it.
    std::vector<std::string> own_outputs = outputs;
    own_outputs[0] = writer_.fresh(node.name + "/" + std::string(node.op->name));
    std::vector<std::string> operands = {own_outputs[0]};
    operands.insert(operands.end(), inputs.begin() + node.op_inputs, inputs.end());
    inputs.resize(size_t(node.op_inputs));
    add_operator(graph, node, std::move(inputs), own_outputs);
    add_program(graph, node, *node.program, operands, {outputs[0]}, extents_of(graph, node.output(0)));
  }

  void add_program(const Graph& graph, const Node& node, const Program& program, std::vector<std::string> operands,
                   const std::vector<std::string>& outputs, const std::optional<Extents>& first) {
    // Absent operands are no inputs of the program.
    std::vector<Extents> shapes;
    std::vector<std::string> present;
    bool all_known = true;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (operands[i].empty()) continue;
      present.push_back(operands[i]);
      const bool accumulator = !node.op->is_elementwise() && i == 0;
      const size_t at = node.op->is_elementwise() ? i : size_t(node.op_inputs) + i - 1;
      const std::optional<Extents> shape = accumulator ? first : extents_of(graph, node.inputs[at]);
      all_known &= shape.has_value();
      shapes.push_back(shape.value_or(Extents()));
    }
    const std::optional<Extents> whole = node.output(0) == kNoValue ? std::nullopt : extents_of(graph, node.output(0));
    writer_.program(program, present, outputs, node.name, all_known && whole ? &shapes : nullptr,
                    whole ? &*whole : nullptr);
  }

  void add_operator(const Graph& graph, const Node& node, std::vector<std::string> inputs,
                    const std::vector<std::string>& outputs) {
    const bool standard = node.op->domain.empty();
    if (!standard && !node.op->decompose.empty()) return add_decomposition(graph, node, inputs, outputs);
    if (!has_onnx_form(*node.op)) {
      fail(ErrorCode::kUnsupported, "node '{}' ({}): this fused operator has no form in ONNX: unsupported", node.name,
           node.op->name);
    }
    const bool bodies = has_bodies(*node.op);
    std::vector<onnx::AttributeProto> subgraphs;
    if (bodies) {
      const int captures = node.is("If") ? int(inputs.size()) - 1 : int(node.attributes.integer(kCaptures, 0));
      const size_t own = inputs.size() - size_t(captures);
      for (const std::string_view key : bodies_of(*node.op)) subgraphs.push_back(subgraph(node, key, inputs, own));
      inputs.resize(own);
    }
    const bool shaped = node.is("RandomUniform") || node.is("RandomNormal");
    if (shaped) inputs.clear();  // the shape is an attribute in the standard
    onnx::NodeProto& proto = writer_.node(std::string(node.op->name), std::move(inputs), outputs, node.name);
    for (onnx::AttributeProto& each : subgraphs) *proto.add_attribute() = std::move(each);
    if (shaped) {
      const Tensor* shape = graph.constant(node.input(0));
      if (!shape)
        fail(ErrorCode::kUnsupported, "node '{}' ({}): its shape is no constant: unsupported", node.name,
             node.op->name);
      static const AttributeSpec kShape("shape", AttributeSpec::Type::kInts);
      put_attribute("shape", shape->to_i64(), &kShape, proto);
    }
    if (standard) {
      writer_.need(opset_of(node, node.input(0) == kNoValue ? DType::kNone : graph.value(node.input(0)).dtype()));
    } else {
      proto.set_domain(std::string(node.op->domain));
      uses_microsoft_ = true;
    }
    for (const auto& [name, value] : node.attributes) {
      if (bodies && (name == kCaptures || std::holds_alternative<std::shared_ptr<const Graph>>(value))) continue;
      const auto* spec = std::find_if(node.op->attributes.begin(), node.op->attributes.end(),
                                      [&, n = std::string_view(name)](const AttributeSpec& s) { return s.name == n; });
      put_attribute(name, value, spec == node.op->attributes.end() ? nullptr : spec, proto);
    }
  }

  /// A body as an attribute: what it captures is read from the graphs around it by name, its weights are the model's.
  onnx::AttributeProto subgraph(const Node& node, std::string_view key, const std::vector<std::string>& inputs,
                                size_t own_inputs) {
    const Graph& body = body_of(node.attributes, key);
    onnx::AttributeProto attribute;
    attribute.set_name(std::string(key));
    attribute.set_type(onnx::AttributeProto::GRAPH);
    onnx::GraphProto& proto = *attribute.mutable_g();
    proto.set_name(writer_.fresh(node.name + "/" + body_label(key)));
    onnx::GraphProto* const around = writer_.enter(&proto);
    Names names;
    const size_t formals = node.is("If") ? 0 : own_inputs;
    for (size_t i = 0; i < body.inputs.size(); ++i) {
      const Value& value = body.value(body.inputs[i]);
      if (i >= formals) {
        names[body.inputs[i]] = inputs[own_inputs + i - formals];
        continue;
      }
      const std::string& name = names[body.inputs[i]] = writer_.fresh(value.name);
      describe_type(value, name, node.is("Scan") || i < 2, *proto.add_input());
    }
    for (ValueId v = 0; v < body.value_count(); ++v) {
      const Value& value = body.value(v);
      if (names.count(v) || (body.uses(v) == 0 && value.producer == kNoNode)) continue;
      if (value.is_constant() && value.constant_id != 0) {
        std::string& known = weight_names_[value.constant_id];
        if (known.empty()) writer_.add_weight(known = writer_.fresh(value.name), value.info.constant);
        names[v] = known;
        continue;
      }
      names[v] = writer_.fresh(value.name);
      if (value.is_constant()) writer_.add_weight(names[v], value.info.constant);
    }
    for (const NodeId id : body.order()) add(body, body.node(id), names);
    std::unordered_set<ValueId> seen;
    for (const ValueId v : body.outputs) {
      std::string name = names.at(v);
      if (body.value(v).producer == kNoNode || !seen.insert(v).second) {  // readers want a node's result of its own
        name = writer_.fresh(name);
        writer_.node("Identity", {names.at(v)}, {name}, name);
      }
      describe_type(body.value(v), name, node.is("Scan"), *proto.add_output());
    }
    writer_.enter(around);
    return attribute;
  }

  /// Shapes in a Loop may change from one iteration to the next, all but the counter's and condition's; a Scan's do
  /// not, and ONNX Runtime asks for them.
  static void describe_type(const Value& value, const std::string& name, bool shape, onnx::ValueInfoProto& out) {
    out.set_name(name);
    if (value.dtype() == DType::kNone) return;
    auto& type = *out.mutable_type()->mutable_tensor_type();
    type.set_elem_type(info(value.dtype()).onnx_id);
    if (!shape || !value.info.shape) return;
    type.mutable_shape();
    for (const Dim& dim : *value.info.shape) {
      auto& to = *type.mutable_shape()->add_dim();
      if (dim.known()) to.set_dim_value(dim.value());
    }
  }

  void add_decomposition(const Graph& graph, const Node& node, const std::vector<std::string>& inputs,
                         const std::vector<std::string>& outputs) {
    std::vector<ValueInfo> infos;
    std::vector<std::string> present;
    for (int i = 0; i < node.op_inputs; ++i) {
      infos.push_back(node.input(i) == kNoValue ? ValueInfo() : graph.value(node.input(i)).info);
      if (node.input(i) != kNoValue) present.push_back(inputs[size_t(i)]);
    }
    const Graph body = decompose(*node.op, node.attributes, infos, int(node.outputs.size()));
    Names names;
    for (size_t i = 0; i < body.inputs.size(); ++i) names[body.inputs[i]] = present[i];
    std::vector<std::pair<std::string, std::string>> copies;
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].empty()) continue;
      if (o >= body.outputs.size()) {
        fail(ErrorCode::kUnsupported, "node '{}' ({}): its decomposition has no output {}: unsupported", node.name,
             node.op->name, o);
      }
      const ValueId result = body.outputs[o];
      const bool inner = body.value(result).producer != kNoNode && !names.count(result);
      if (inner) names[result] = outputs[o];
    }
    for (ValueId v = 0; v < body.value_count(); ++v) {
      const Value& value = body.value(v);
      if (names.count(v) || (body.uses(v) == 0 && value.producer == kNoNode)) continue;
      names[v] = writer_.fresh(node.name + "/" + value.name);
      if (value.is_constant()) writer_.add_weight(names[v], value.info.constant);
    }
    for (const NodeId id : body.order()) {
      Node inner = body.node(id);
      inner.name = node.name + "/" + inner.name;
      add(body, inner, names);
    }
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (outputs[o].empty() || names.at(body.outputs[o]) == outputs[o]) continue;
      writer_.node("Identity", {names.at(body.outputs[o])}, {outputs[o]}, writer_.fresh(node.name + "/Identity"));
    }
  }

  static void describe(const Value& value, const std::string& name, onnx::ValueInfoProto& out) {
    out.set_name(name);
    if (value.dtype() == DType::kNone) return;  // not inferred yet: readers infer it
    auto& type = *out.mutable_type()->mutable_tensor_type();
    type.set_elem_type(info(value.dtype()).onnx_id);
    if (!value.info.shape) return;
    type.mutable_shape();
    for (const Dim& dim : *value.info.shape) {
      auto& to = *type.mutable_shape()->add_dim();
      if (dim.known())
        to.set_dim_value(dim.value());
      else
        to.set_dim_param(dim.text());
    }
  }

  void add_interface(const Names& names) {
    for (const ValueId v : graph_.inputs) describe(graph_.value(v), names.at(v), *model_.mutable_graph()->add_input());
    std::unordered_set<ValueId> seen;
    for (const ValueId v : graph_.outputs) {
      std::string name = names.at(v);
      if (!seen.insert(v).second) {  // an output that is listed twice needs two names
        const std::string again = writer_.fresh(name);
        writer_.node("Identity", {name}, {again}, again);
        name = again;
      }
      describe(graph_.value(v), name, *model_.mutable_graph()->add_output());
    }
  }

  const Graph& graph_;
  onnx::ModelProto model_;
  NodeWriter writer_;
  std::unordered_map<uint64_t, std::string> weight_names_;  // by the constant's identity
  bool uses_microsoft_ = false;
};

}  // namespace

void export_onnx(const Graph& graph, const std::string& path, const ExportOptions& options) {
  Exporter(graph).run(path, options);
}

std::string node_without_onnx_form(const Graph& graph) {
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    if (!node.op->is_elementwise() && !has_onnx_form(*node.op))
      return fmt::format("node '{}' ({})", node.name, node.op->name);
    for (const std::string_view key : bodies_of(*node.op)) {
      std::string inner = node_without_onnx_form(body_of(node.attributes, key));
      if (!inner.empty()) return inner;
    }
  }
  return {};
}

}  // namespace ridgeline
