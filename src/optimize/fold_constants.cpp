// Constant folding: a node all of whose inputs are constants is computed once, by the reference; one whose content
// inference knows (a Shape of settled extents) is not even that.
#include <algorithm>

#include "core/saturate.h"
#include "ir/control.h"
#include "ir/reference.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

// A folded tensor may not blow a small file up (Expand, Tile, ConstantOfShape bombs): at most this, or what its inputs
// take.
constexpr int64_t kMostFoldedBytes = int64_t(4) << 20;
// Nor may all of them together: 40 nodes that join their input with itself made terabytes of 16 bytes. Four times what
// the model's constants take, and this.
constexpr int64_t kMostFoldedInAll = int64_t(64) << 20;
// The reference does some 700 million operations a second: three products of 1000 x 1000 took 9 s.
constexpr int64_t kMostFoldedFlops = int64_t(1) << 28;

/// What may still be folded.
struct Budget {
  int64_t bytes = kMostFoldedInAll, flops = kMostFoldedFlops;
};

// Nodes in bodies of loops that one pass runs to fold them: some tenths of a second.
constexpr int64_t kMostFoldedNodes = 1 << 17;

int64_t bytes_of_all(const std::vector<Tensor>& tensors) {
  int64_t total = 0;
  for (const Tensor& t : tensors) total += t ? t.bytes() : 0;
  return total;
}

bool is_random(const Node& node) {
  for (const std::string_view key : bodies_of(*node.op)) {
    const Graph& body = body_of(node.attributes, key);
    const std::vector<NodeId> order = body.order();
    if (std::any_of(order.begin(), order.end(), [&](NodeId id) { return is_random(body.node(id)); })) return true;
  }
  return node.is("RandomNormal") || node.is("RandomUniform") || node.is("Bernoulli") || node.is("Multinomial") ||
         node.is("RandomNormalLike") || node.is("RandomUniformLike");
}

bool may_fold(const Graph& graph, const Node& node) {
  if (is_random(node) || node.program) return false;
  if (has_bodies(*node.op)) {  // its shapes may follow from its run alone: what it gives is looked at afterwards
    return std::all_of(node.inputs.begin(), node.inputs.end(),
                       [&](ValueId v) { return v == kNoValue || graph.constant(v); });
  }
  // References hold floats as numbers, which makes a signalling NaN quiet: bits are left to the kernel.
  if (node.is("BitCast") &&
      (is_float(graph.value(node.output()).dtype()) || is_float(graph.value(node.input(0)).dtype())))
    return false;
  return std::all_of(node.inputs.begin(), node.inputs.end(),
                     [&](ValueId v) { return v == kNoValue || graph.constant(v); }) &&
         std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) {
           return v == kNoValue || (graph.value(v).info.shape && known(graph.value(v).shape()) &&
                                    graph.value(v).info.dtype != DType::kNone);
         });
}

/// Why a node that may be folded is not, or nullptr, and what it takes is taken from the budget. "": not worth a line.
const char* why_not(const Graph& graph, const Node& node, Budget& budget) {
  int64_t in_bytes = 0, out_bytes = 0;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    const auto begin = node.inputs.begin(), at = begin + int64_t(k);
    if (*at != kNoValue && std::find(begin, at, *at) == at)  // one that is read twice is there once
      in_bytes = saturated_sum(in_bytes, graph.constant(*at)->bytes());
  }
  for (ValueId v : node.outputs) {
    if (v == kNoValue) continue;
    const Value& value = graph.value(v);
    out_bytes = saturated_sum(out_bytes, bytes_of(value.dtype(), element_count(extents(value.shape()))));
  }
  if (out_bytes > std::max(kMostFoldedBytes, in_bytes)) return "";
  if (out_bytes > budget.bytes) return "the constants of this model would grow too much";
  const int64_t flops = node_flops(graph, node);
  if (flops > budget.flops) return "computing it once, by the reference, would take too long";
  budget.bytes -= out_bytes;
  budget.flops -= flops;
  return nullptr;
}

// Integers that inference knows (a Shape of settled extents, and what is computed from it), as a tensor.
Tensor known_content(const Graph& graph, ValueId v) {
  const Value& value = graph.value(v);
  if (!value.info.values || !value.info.shape || !known(value.shape()) || value.dtype() == DType::kNone) return {};
  for (const Dim& d : *value.info.values)
    if (!d.known()) return {};
  Tensor t(value.dtype(), extents(value.shape()));
  if (t.elements() != int64_t(value.info.values->size())) return {};
  for (int64_t i = 0; i < t.elements(); ++i) store_i64(t.dtype(), t.data(), i, (*value.info.values)[size_t(i)].value());
  return t;
}

bool fold_known_content(Graph& graph, Node& node, Decisions& decisions) {
  if (node.outputs.size() != 1 || node.output() == kNoValue || node.program) return false;
  const Tensor content = known_content(graph, node.output());
  if (!content || !decisions.allowed(node)) return false;
  graph.make_constant(node.output(), content);
  decisions.apply(origins({&node}), content.bytes(), 1);
  graph.remove(node);
  return true;
}

}  // namespace

void fold_constants(Graph& graph, Decisions& decisions) {
  const LoopBudget loops(kMostFoldedNodes);
  Budget budget;
  for (ValueId v = 0; v < graph.value_count(); ++v)
    if (const Tensor* held = graph.constant(v)) budget.bytes = saturated_sum(budget.bytes, 4 * held->bytes());
  for (NodeId id : graph.order()) {
    Node& node = graph.node(id);
    if (!node.alive || node.outputs.empty() || fold_known_content(graph, node, decisions)) continue;
    if (!may_fold(graph, node) || !decisions.allowed(node)) continue;
    const bool bodies = has_bodies(*node.op);
    if (const char* reason = bodies ? nullptr : why_not(graph, node, budget)) {
      if (*reason) decisions.refuse(node, "too_large", reason);
      continue;
    }
    std::vector<Tensor> inputs;
    for (ValueId v : node.inputs) inputs.push_back(v == kNoValue ? Tensor() : *graph.constant(v));
    std::vector<Tensor> outputs;
    try {
      outputs = run_reference(*node.op, node.attributes, inputs, int(node.outputs.size()), 0);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kUnsupported && !(bodies && error.code() == ErrorCode::kResource)) throw;
      decisions.refuse(node, bodies ? "too_much_work" : "no_reference", error.what());
      continue;
    }
    if (bodies && bytes_of_all(outputs) > std::max(kMostFoldedBytes, bytes_of_all(inputs))) {
      decisions.refuse(node, "too_large", "its results are larger than what folding may make");
      continue;
    }
    const std::vector<ValueId> values = node.outputs, read = node.inputs;
    int64_t bytes = 0;
    for (size_t o = 0; o < values.size(); ++o) {
      if (values[o] == kNoValue) continue;
      bytes += outputs[o].bytes();
      graph.make_constant(values[o], outputs[o]);
    }
    decisions.apply(origins({&node}), bytes, 1);
    graph.remove(node);
    for (ValueId v : read) release_unread(graph, v);
  }
  // Inference again: contents that became known may settle shapes.
  graph.infer();
  graph.remove_dead();
}

}  // namespace ridgeline
