// Products with constant weights in a lower precision: bf16, or 8 bits with a scale for each column and activations
// rounded to 127 levels of each row's largest. Lossy: what is multiplied is rounded, the sums and the epilogue stay
// f32.
#include <algorithm>
#include <cmath>

#include "core/narrow.h"
#include "optimize/lower_images.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

constexpr int64_t kLeastWeights = 4096;  // below, rounding the activations costs more than the product

constexpr int64_t kMostProducts = 131072;  // of 127 by 128 in an i32

// [k, n] row-major to rows of q: [n, k].
Tensor to_bf16(const Tensor& w) {
  const int64_t k = w.shape()[0], n = w.shape()[1];
  Tensor q(DType::kBF16, {n, k});
  const float* from = w.as<float>();
  uint16_t* to = static_cast<uint16_t*>(q.data());
  constexpr int64_t kBlock = 32;  // lines of both sides stay in the first cache
  for (int64_t i0 = 0; i0 < k; i0 += kBlock)
    for (int64_t j0 = 0; j0 < n; j0 += kBlock)
      for (int64_t j = j0; j < std::min(n, j0 + kBlock); ++j)
        for (int64_t i = i0; i < std::min(k, i0 + kBlock); ++i) to[j * k + i] = narrow_to_bf16(from[i * n + j]);
  return q;
}

Tensor to_i8(const Tensor& w, Tensor& scale) {
  const int64_t k = w.shape()[0], n = w.shape()[1];
  Tensor q(DType::kI8, {n, k});
  scale = Tensor(DType::kF32, {n, 1});
  const float* from = w.as<float>();
  int8_t* to = static_cast<int8_t*>(q.data());
  for (int64_t j = 0; j < n; ++j) {
    float largest = 0;
    for (int64_t i = 0; i < k; ++i) largest = std::max(largest, std::fabs(from[i * n + j]));
    const float step = largest / 127.0f;
    scale.as<float>()[j] = step;
    for (int64_t i = 0; i < k; ++i)
      to[j * k + i] =
          step > 0 ? int8_t(std::clamp(std::nearbyintf(from[i * n + j] / step), -127.0f, 127.0f)) : int8_t(0);
  }
  return q;
}

bool all_finite(const Tensor& w) {
  const float* from = w.as<float>();
  return std::all_of(from, from + w.elements(), [](float x) { return std::isfinite(x); });
}

void lower(Graph& graph, Decisions& decisions, bool to_bytes) {
  const OpSchema& op = *find_op("LowBitMatMul", "ridgeline");
  for (NodeId id : graph.order()) {
    if (!graph.node(id).alive || !graph.node(id).is("MatMul")) continue;
    const ValueId weights = graph.node(id).input(1);
    const Tensor* w = graph.constant(weights);
    if (!w || w->dtype() != DType::kF32 || w->rank() != 2 || graph.value(graph.node(id).input(0)).rank() < 2) continue;
    const int64_t k = w->shape()[0];
    if (w->elements() < kLeastWeights) {
      decisions.refuse(graph.node(id), "too_small",
                       fmt::format("{} weights: rounding the activations would cost more", w->elements()));
      continue;
    }
    if (to_bytes && k % 4 != 0) {
      decisions.refuse(graph.node(id), "shape", fmt::format("k = {} is no multiple of 4", k));
      continue;
    }
    if (to_bytes && k > kMostProducts) {
      decisions.refuse(graph.node(id), "too_long", fmt::format("sums of {} products may leave 32 bits", k));
      continue;
    }
    if (!all_finite(*w)) {
      decisions.refuse(graph.node(id), "not_finite", "its weights hold infinities or NaN");
      continue;
    }
    if (!decisions.allowed(graph.node(id))) continue;
    const std::vector<std::string> names = origins({&graph.node(id)});
    const std::string stem = graph.value(weights).name;
    const int64_t before = w->bytes();
    std::vector<ValueId> inputs = {graph.node(id).input(0)};
    Attributes attributes;
    if (to_bytes) {
      Tensor scale;
      inputs.push_back(graph.add_constant(stem + ".i8", to_i8(*w, scale)));
      inputs.push_back(graph.add_constant(stem + ".scale", scale));
      attributes.set("act", std::string("i8"));
    } else {
      inputs.push_back(graph.add_constant(stem + ".bf16", to_bf16(*w)));
      attributes.set("bits", int64_t(16));
      attributes.set("act", std::string("bf16"));
    }
    const int64_t after = graph.constant(inputs[1])->bytes();
    const NodeId lowered = graph.add_node(op, inputs, attributes, 1, {}, graph.node(id).name);
    Node &from = graph.node(id), &to = graph.node(lowered);
    to.origin = names;
    if (from.program) {
      const int own = to.op_inputs;
      inputs = to.inputs;
      inputs.insert(inputs.end(), from.inputs.begin() + from.op_inputs, from.inputs.end());
      to.program = from.program;
      graph.set_inputs(to, std::move(inputs), own);
      graph.infer(to);
    }
    graph.replace_uses(from.output(), to.output());
    graph.remove(from);
    release_unread(graph, weights);
    decisions.apply(names, before - after, 0);
  }
  graph.remove_dead();
}

}  // namespace

void lower_to_bf16(Graph& graph, Decisions& decisions) {
  lower(graph, decisions, false);
  lower_images_to_bf16(graph, decisions);
}
void lower_to_int8(Graph& graph, Decisions& decisions) { lower(graph, decisions, true); }

}  // namespace ridgeline
