// Layout: results of two-dimensional convolutions and what works on them may be stored with the channels innermost, so
// that a convolution is a product of contiguous rows; which of them are, the plan decides (plan/layouts.cpp): it knows
// extents and kernels. The blocked layout of this library is channels-last as strides:
// the logical shape stays [N, C, H, W], and a Transpose to [N, H, W, C] behind it is a view.
#include <algorithm>

#include "optimize/passes.h"

namespace ridgeline {
namespace {

bool starts_region(const Node& node) { return node.is("Conv") || node.is("ConvTranspose") || node.is("ConvInteger"); }

bool is_stored_so(DType t) {
  return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16 || t == DType::kU8 || t == DType::kI8 ||
         t == DType::kI32;
}

// Operators that keep the layout of their first operand.
bool keeps_layout(const Node& node) {
  return node.op->is_elementwise() || node.is("MaxPool") || node.is("AveragePool") || node.is("GlobalAveragePool") ||
         node.is("GlobalMaxPool") || node.is("Resize") || node.is("BatchNormalization") || node.is("Concat") ||
         node.is("Pad") || node.is("InstanceNormalization");
}

/// A step on an image of few channels that only convolutions read (its cast or quantization): it writes what they would
/// otherwise have copied.
bool loads_region(const Graph& graph, const Node& node, ValueId v) {
  const Dim& channels = graph.value(v).shape()[1];
  if (!node.op->is_elementwise() || !channels.known() || channels.value() < 2 || channels.value() > 4) return false;
  if (content_uses(graph, v) != int(graph.users(v).size()) || graph.users(v).empty()) return false;
  const std::vector<NodeId> users = graph.users(v);
  return std::all_of(users.begin(), users.end(),
                     [&](NodeId u) { return graph.node(u).is("Conv") || graph.node(u).is("ConvInteger"); });
}

}  // namespace

void channels_last(Graph& graph, Decisions& decisions) {
  std::vector<std::string> names;
  int marked = 0;
  for (NodeId id : graph.order()) {
    Node& node = graph.node(id);
    for (ValueId v : node.outputs) {
      if (v == kNoValue || !graph.value(v).info.shape || graph.value(v).rank() != 4 ||
          !is_stored_so(graph.value(v).dtype()))
        continue;
      bool last = starts_region(node) || loads_region(graph, node, v);
      if (!last && keeps_layout(node)) {
        // All activations of its shape's rank must be there already, or a copy would be needed for each.
        last = std::any_of(node.inputs.begin(), node.inputs.end(),
                           [&](ValueId i) { return i != kNoValue && graph.value(i).channels_last; }) &&
               std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId i) {
                 return i == kNoValue || graph.constant(i) || graph.value(i).channels_last ||
                        !graph.value(i).info.shape || graph.value(i).rank() < 4;
               });
      }
      if (!last || !decisions.allowed(node)) continue;
      graph.value(v).channels_last = true;
      ++marked;
      for (const std::string& n : origins({&node})) names.push_back(n);
    }
  }
  if (marked) decisions.apply(std::move(names), 0, 0);
}

}  // namespace ridgeline
