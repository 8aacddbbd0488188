#include "session/inspect.h"

#include "core/saturate.h"
#include "ir/problem.h"
#include "ir/value_extents.h"
#include "session/load.h"

namespace ridgeline {
namespace {

Operand operand_at(const Graph& graph, ValueId v, const Bindings& bindings) {
  Operand o;
  if (v == kNoValue || !graph.value(v).info.shape) return o;
  o.dtype = graph.value(v).dtype();
  o.layout = Layout(extents_of(graph.value(v), bindings));
  if (const Tensor* c = graph.constant(v)) {
    o.constant = *c;
    o.is_constant = true;
  }
  return o;
}

InspectedTensor describe(const Graph& graph, ValueId v) {
  const Value& value = graph.value(v);
  return {value.name, value.dtype(), value.info.shape.has_value(), value.info.shape ? value.shape() : Shape{}};
}

}  // namespace

Inspection inspect_model(const std::string& path, const Bindings& dims, const std::string& external_root) {
  ImportReport report;
  ImportOptions options;
  options.collect_unsupported = true;
  options.report = &report;
  options.external_root = external_root;
  Graph graph = import_onnx(path, options);
  Inspection out;
  out.operators = report.operators;
  out.parameters = report.parameters;
  out.unsupported = report.unsupported;
  out.notes = report.notes;
  for (const auto& [op, count] : out.operators) out.nodes += count;
  try {
    check_dims(graph, dims);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", path, error.what());
  }
  Bindings bindings = dims;
  for (const std::string& s : graph.symbols()) bindings.emplace(s, 1);
  const std::vector<Graph::Unresolved> unresolved = graph.infer();
  if (!unresolved.empty()) {
    out.complete = false;
    out.incomplete_reason = unresolved.front().reason;
  }
  for (NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    Problem p;
    p.op = node.op;
    p.attributes = node.attributes;
    p.op_inputs = node.op_inputs;
    bool shaped = true;
    for (ValueId v : node.inputs) {
      p.inputs.push_back(operand_at(graph, v, bindings));
      shaped = shaped && (v == kNoValue || p.inputs.back().present());
    }
    for (ValueId v : node.outputs) {
      p.outputs.push_back(operand_at(graph, v, bindings));
      shaped = shaped && (v == kNoValue || p.outputs.back().present());
    }
    if (!shaped) continue;
    if (node.op->is_elementwise()) p.program = std::make_shared<const Program>(program_of(graph, node));
    const Cost cost = cost_of(p);
    out.flops = saturated_sum(out.flops, cost.flops);
    out.bytes = saturated_sum(out.bytes, cost.bytes());
  }
  for (ValueId v : graph.inputs) out.inputs.push_back(describe(graph, v));
  for (ValueId v : graph.outputs) out.outputs.push_back(describe(graph, v));
  return out;
}

}  // namespace ridgeline
