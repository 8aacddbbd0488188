#include "formats/onnx/subgraphs.h"

#include <unordered_map>

#include "ridgeline/error.h"

namespace ridgeline {

onnx::GraphProto& subgraph_of(onnx::NodeProto& node, const std::string& attribute) {
  onnx::GraphProto* found = nullptr;
  for (onnx::AttributeProto& each : *node.mutable_attribute()) {
    if (each.name() != attribute) continue;
    if (!each.has_g() || found) fail(ErrorCode::kBadModel, "attribute '{}' has to be one graph", attribute);
    found = each.mutable_g();
  }
  if (!found) fail(ErrorCode::kBadModel, "the attribute '{}' is missing", attribute);
  return *found;
}

namespace {

/// The attributes of the node go into a Scan of one batch, which becomes the body of the node.
const onnx::NodeProto* batch_scan(onnx::NodeProto& node) {
  const onnx::GraphProto& body = subgraph_of(node, "body");
  // Names that no other value can have: outputs of a node are unique in the graph.
  std::string stem = "batch";
  for (const std::string& output : node.output())
    if (!output.empty()) stem = output + "/batch";
  onnx::GraphProto outer;
  outer.set_name("batches");
  onnx::NodeProto inner;
  inner.set_op_type("Scan");
  inner.set_name("batch");
  for (int i = 0; i < body.input_size(); ++i) {
    const std::string name = stem + "_in_" + std::to_string(i);
    inner.add_input(name);
    onnx::ValueInfoProto& input = *outer.add_input();
    input = body.input(i);
    input.mutable_type()->mutable_tensor_type()->clear_shape();  // a state, or a whole sequence
    input.set_name(name);
  }
  for (int o = 0; o < body.output_size(); ++o) {
    const std::string name = stem + "_out_" + std::to_string(o);
    inner.add_output(name);
    onnx::ValueInfoProto& output = *outer.add_output();
    output = body.output(o);
    output.mutable_type()->mutable_tensor_type()->clear_shape();
    output.set_name(name);
  }
  for (onnx::AttributeProto& attribute : *node.mutable_attribute()) {
    onnx::AttributeProto& moved = *inner.add_attribute();
    moved.Swap(&attribute);
    if (moved.name() == "directions") moved.set_name("scan_input_directions");
  }
  *outer.add_node() = std::move(inner);
  node.clear_attribute();
  onnx::AttributeProto& attribute = *node.add_attribute();
  attribute.set_name("body");
  attribute.set_type(onnx::AttributeProto::GRAPH);
  *attribute.mutable_g() = std::move(outer);
  return &attribute.g().node(0);
}

/// The shape of what a body sees of its scan input `k`; none where axes are wrong, which inference says.
std::optional<Shape> slice_of(const NodeForm& form, const std::optional<Shape>& shape, size_t k) {
  const std::vector<int64_t> axes = form.attributes.integers("scan_input_axes");
  const int64_t given = k < axes.size() ? axes[k] : 0;
  if (!shape) return std::nullopt;
  const auto rank = int64_t(shape->size());
  if (given < -rank || given >= rank) return std::nullopt;
  Shape slice = *shape;
  slice.erase(slice.begin() + (given < 0 ? given + rank : given));
  return slice;
}

}  // namespace

std::vector<ValueInfo> formals_of(NodeForm& form) {
  std::vector<ValueInfo> formals;
  if (form.op == "If") {
    if (form.inputs.size() != 1) fail(ErrorCode::kBadModel, "has {} inputs, it takes 1", form.inputs.size());
    return formals;
  }
  if (form.op == "Loop") {
    if (form.inputs.size() < 2) form.inputs.resize(2, kNoValue);
    formals.push_back({DType::kI64, Shape(), std::nullopt, {}});
    formals.push_back({DType::kBool, Shape(), std::nullopt, {}});
  }
  const int64_t scanned = form.op == "Scan" ? form.attributes.integer("num_scan_inputs", 0) : 0;
  const auto inputs = int64_t(form.inputs.size());
  if (form.op == "Scan" && (scanned < 1 || scanned > inputs))
    fail(ErrorCode::kBadModel, "num_scan_inputs is {}; it has {} inputs", scanned, inputs);
  for (size_t i = formals.size(); i < form.inputs.size(); ++i) {
    if (form.inputs[i] == kNoValue) fail(ErrorCode::kBadModel, "input {} is missing", i);
    const ValueInfo& info = form.graph.value(form.inputs[i]).info;
    formals.push_back({info.dtype, info.shape, std::nullopt, {}});
    if (int64_t(i) >= inputs - scanned)
      formals.back().shape = slice_of(form, info.shape, size_t(int64_t(i) - inputs + scanned));
  }
  return formals;
}

void order_captures(const Graph& around, Graph& body, size_t formals, const std::vector<Capture>& own,
                    const std::vector<Capture>& all) {
  const std::vector<ValueId> given(body.inputs.begin() + int64_t(formals), body.inputs.end());
  std::vector<ValueId> ordered(body.inputs.begin(), body.inputs.begin() + int64_t(formals));
  std::unordered_map<std::string, ValueId> here;
  for (size_t i = 0; i < own.size(); ++i) here.emplace(own[i].name, given[i]);
  for (const Capture& capture : all) {
    const auto found = here.find(capture.name);
    const Value& value = around.value(capture.outer);
    ordered.push_back(found != here.end() ? found->second
                                          : body.add_input(capture.name, value.dtype(), value.info.shape));
  }
  body.inputs = std::move(ordered);
}

bool fits_without_shapes(const Graph& graph, const Node& node) {
  std::vector<ValueInfo> infos(node.inputs.size());
  std::vector<const ValueInfo*> pointers(node.inputs.size(), nullptr);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    infos[i].dtype = graph.value(node.inputs[i]).dtype();
    pointers[i] = &infos[i];
  }
  try {
    infer_node(*node.op, node.attributes, node.name, pointers, int(node.outputs.size()));
  } catch (const NeedsValues&) {
    return true;
  } catch (const Error&) {
    return false;
  }
  return true;
}

/// Opset 8: every operand begins with an axis of batches. That is a Scan over batches of a Scan of today's form.
const onnx::NodeProto* scan_of_batches(onnx::NodeProto& node, NodeForm& form) {
  if (form.has(0)) fail(ErrorCode::kUnsupported, "Scan of opset 8 with sequence_lens is unsupported");
  if (!form.inputs.empty()) form.inputs.erase(form.inputs.begin());
  const int64_t scanned = form.attributes.integer("num_scan_inputs", 0), inputs = int64_t(form.inputs.size());
  if (scanned < 1 || scanned > inputs)
    fail(ErrorCode::kBadModel, "num_scan_inputs is {}; it has {} inputs", scanned, inputs);
  form.attributes = {};
  form.attributes.set("num_scan_inputs", inputs);
  return batch_scan(node);
}

}  // namespace ridgeline
