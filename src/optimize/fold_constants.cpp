// Constant folding: a node all of whose inputs are constants is computed once, by the reference.
#include <algorithm>

#include "ir/reference.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

// A folded tensor may not blow a small file up (Expand, Tile, ConstantOfShape bombs): at most this, or what its inputs
// take.
constexpr int64_t kMostFoldedBytes = int64_t(4) << 20;

bool is_random(const Node& node) {
  return node.is("RandomNormal") || node.is("RandomUniform") || node.is("Bernoulli") || node.is("Multinomial") ||
         node.is("RandomNormalLike") || node.is("RandomUniformLike");
}

bool may_fold(const Graph& graph, const Node& node) {
  if (is_random(node) || node.program) return false;
  int64_t in_bytes = 0, out_bytes = 0;
  for (ValueId v : node.inputs) {
    if (v == kNoValue) continue;
    if (!graph.constant(v)) return false;
    in_bytes += graph.constant(v)->bytes();
  }
  for (ValueId v : node.outputs) {
    if (v == kNoValue) continue;
    const Value& value = graph.value(v);
    if (!value.info.shape || !known(value.shape())) return false;
    out_bytes += bytes_of(value.dtype(), element_count(extents(value.shape())));
  }
  return out_bytes <= std::max(kMostFoldedBytes, in_bytes);
}

}  // namespace

void fold_constants(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    Node& node = graph.node(id);
    if (!node.alive || node.outputs.empty() || !may_fold(graph, node) || !decisions.allowed(node)) continue;
    if (std::any_of(node.outputs.begin(), node.outputs.end(),
                    [&](ValueId v) { return v != kNoValue && graph.value(v).info.dtype == DType::kNone; }))
      continue;
    std::vector<Tensor> inputs;
    for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? Tensor() : *graph.constant(v));
    std::vector<Tensor> outputs;
    try {
      outputs = run_reference(*node.op, node.attributes, inputs, int(node.outputs.size()), 0);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported) throw;
      decisions.refuse(node, "no_reference", error.what());
      continue;
    }
    const std::vector<ValueId> values = node.outputs;
    int64_t bytes = 0;
    for (size_t o = 0; o < values.size(); ++o) {
      if (values[o] == kNoValue) continue;
      bytes += outputs[o].bytes();
      graph.make_constant(values[o], outputs[o]);
    }
    decisions.apply(origins({&node}), bytes, 1);
    graph.remove(node);
  }
  // Inference again: contents that became known may settle shapes.
  graph.infer();
  graph.remove_dead();
}

}  // namespace ridgeline
