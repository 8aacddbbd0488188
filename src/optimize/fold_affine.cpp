// y = s * contraction(x, w) + t, with s and t constant per output channel, becomes contraction(x, s * w, s * b + t).
// BatchNormalization with fixed statistics is such a scale and shift: s = scale / sqrt(var + eps), t = bias - mean * s.
#include <algorithm>
#include <cmath>

#include "ir/infer.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

struct Affine {
  std::vector<double> scale, shift;  // one an output channel; empty: 1 and 0
};

// Axis of the weights that runs over output channels, with how many times each group repeats it.
struct Target {
  Node* node;
  int weight_axis;
  int64_t channels;
  int channel_axis;  // of the output
};

bool is_convolution(const Node& node) { return node.is("Conv") || node.is("ConvTranspose"); }

std::optional<Target> target_of(Graph& graph, ValueId value) {
  Node* node = graph.producer(value);
  if (!node || node->program || !is_float(graph.value(value).dtype())) return std::nullopt;
  const Tensor* w = node->op_inputs > 1 ? graph.constant(node->input(1)) : nullptr;
  if (!w) return std::nullopt;
  if (is_convolution(*node)) {
    if (node->input(2) != kNoValue && !graph.constant(node->input(2))) return std::nullopt;
    const int64_t groups = schema_integer(*node->op, node->attributes, "group");
    const int64_t channels = node->is("Conv") ? w->shape()[0] : w->shape()[1] * groups;
    return Target{node, node->is("Conv") ? 0 : 1, channels, 1};
  }
  if (node->is("MatMul") && w->rank() == 2 && graph.value(value).rank() >= 1 &&
      graph.value(node->input(0)).rank() >= 2) {
    return Target{node, 1, w->shape()[1], graph.value(value).rank() - 1};
  }
  return std::nullopt;
}

// A constant operand as one number a channel; nullopt if it varies along anything else or broadcasts the output up.
std::optional<std::vector<double>> per_channel(const Graph& graph, ValueId operand, ValueId output,
                                               const Target& target) {
  const Tensor* c = graph.constant(operand);
  const int rank = graph.value(output).rank();
  if (!c || c->rank() > rank) return std::nullopt;
  for (int a = 0; a < c->rank(); ++a) {
    const int axis = a + rank - c->rank();
    if (c->shape()[size_t(a)] == 1) continue;
    if (axis != target.channel_axis || c->shape()[size_t(a)] != target.channels) return std::nullopt;
  }
  std::vector<double> values(size_t(target.channels));
  for (size_t i = 0; i < values.size(); ++i) values[i] = c->f64(c->elements() == 1 ? 0 : int64_t(i));
  return values;
}

// Weights times such a factor neither overflow nor vanish where the product after the sum would not have; the sums of
// real models lie within 1e-12 to 1e12 by a wide margin. A factor of 3.4e38, legal after the convolution, made infinite
// weights.
bool keeps_weights_in_range(const std::vector<double>& factors) {
  return std::all_of(factors.begin(), factors.end(), [](double s) {
    return s == 0 || (std::isfinite(s) && std::fabs(s) <= 1e12 && std::fabs(s) >= 1e-12);
  });
}

// The weights and bias are copied, never edited in place: another node may share them.
void apply(Graph& graph, const Target& target, const Affine& affine) {
  Node& node = *target.node;
  const Tensor& w = *graph.constant(node.input(1));
  if (!affine.scale.empty()) {
    Tensor scaled(w.dtype(), w.shape());
    const int64_t axis_extent = w.shape()[size_t(target.weight_axis)];
    int64_t inner = 1;
    for (int a = target.weight_axis + 1; a < w.rank(); ++a) inner *= w.shape()[size_t(a)];
    const int64_t groups = node.is("ConvTranspose") ? schema_integer(*node.op, node.attributes, "group") : 1;
    const int64_t rows_per_group = w.shape()[0] / std::max<int64_t>(groups, 1);
    const int64_t rows = inner == 0 ? 0 : w.elements() / inner;
    for (int64_t row = 0; row < rows; ++row) {  // of `inner` elements with one factor
      int64_t channel = row % axis_extent;
      if (node.is("ConvTranspose")) channel += row / axis_extent / rows_per_group * axis_extent;
      const double factor = affine.scale[size_t(channel)];
      const int64_t begin = row * inner, end = begin + inner;
      if (w.dtype() == DType::kF32) {
        const float* from = w.as<float>();
        float* to = scaled.as<float>();
        for (int64_t i = begin; i < end; ++i) to[i] = float(double(from[i]) * factor);
      } else {
        for (int64_t i = begin; i < end; ++i) store_f64(w.dtype(), scaled.data(), i, w.f64(i) * factor);
      }
    }
    const ValueId replaced = node.input(1);
    graph.set_input(node, 1, graph.add_constant(graph.value(replaced).name, scaled));
    release_unread(graph, replaced);
  }
  const Tensor* old = is_convolution(node) && node.input(2) != kNoValue ? graph.constant(node.input(2)) : nullptr;
  if (!old && affine.shift.empty()) return;
  Tensor bias(graph.value(node.output()).dtype(), {target.channels});
  for (int64_t c = 0; c < target.channels; ++c) {
    double b = old ? old->f64(c) : 0;
    if (!affine.scale.empty()) b *= affine.scale[size_t(c)];
    if (!affine.shift.empty()) b += affine.shift[size_t(c)];
    store_f64(bias.dtype(), bias.data(), c, b);
  }
  const ValueId b = graph.add_constant(node.name + ".bias", bias);
  std::vector<ValueId> inputs = {node.input(0), node.input(1), b};
  graph.set_inputs(node, std::move(inputs), 3);
}

// The node that scales and shifts disappears into the contraction.
void finish(Graph& graph, Decisions& decisions, Node& affine_node, Node& contraction) {
  const ValueId out = affine_node.output();
  const int64_t bytes = 2 * value_bytes(graph, out);
  const std::vector<std::string> names = origins({&contraction, &affine_node});
  const double flops = double(node_flops(graph, contraction)),
               moved = double(value_bytes(graph, contraction.input(0)) + value_bytes(graph, contraction.input(1)) +
                              value_bytes(graph, out));
  add_origin(contraction, affine_node);
  graph.replace_uses(out, contraction.output());
  graph.remove(affine_node);
  decisions.apply(names, bytes, 1, moved > 0 ? flops / (moved + double(bytes)) : 0, moved > 0 ? flops / moved : 0);
}

// BatchNormalization's statistics as scale and shift; nullopt with the refusal recorded.
std::optional<Affine> batch_normalization(Graph& graph, Node& norm, Decisions& decisions) {
  if (schema_integer(*norm.op, norm.attributes, "training_mode") != 0) {
    decisions.refuse(norm, "training_mode",
                     "training_mode = 1: the statistics come from the batch, so there is nothing constant to fold; "
                     "export the model for inference");
    return std::nullopt;
  }
  for (int o = 1; o < int(norm.outputs.size()); ++o) {
    if (norm.output(o) == kNoValue || graph.uses(norm.output(o)) == 0) continue;
    decisions.refuse(norm, "live_statistics", "its running statistics are outputs of the graph");
    return std::nullopt;
  }
  for (int i = 1; i < 5; ++i) {
    if (graph.constant(norm.input(i))) continue;
    decisions.refuse(norm, "statistics_not_constant",
                     fmt::format("input {} ('{}') is not a constant", i,
                                 norm.input(i) == kNoValue ? "missing" : graph.value(norm.input(i)).name));
    return std::nullopt;
  }
  const double epsilon = schema_number(*norm.op, norm.attributes, "epsilon");
  const Tensor &scale = *graph.constant(norm.input(1)), &bias = *graph.constant(norm.input(2)),
               &mean = *graph.constant(norm.input(3)), &var = *graph.constant(norm.input(4));
  Affine a;
  for (int64_t c = 0; c < scale.elements(); ++c) {
    const double s = scale.f64(c) / std::sqrt(var.f64(c) + epsilon);
    a.scale.push_back(s);
    a.shift.push_back(bias.f64(c) - mean.f64(c) * s);
  }
  if (!keeps_weights_in_range(a.scale)) {
    decisions.refuse(norm, "not_finite", "scale / sqrt(var + epsilon) is not finite, or out of 1e-12 to 1e12");
    return std::nullopt;
  }
  return a;
}

// A BatchNormalization without a contraction before it: the same scale and shift as a Program.
void as_program(Graph& graph, Node& norm, const Affine& affine, Decisions& decisions) {
  const DType dtype = graph.value(norm.input(0)).dtype();
  const int rank = graph.value(norm.input(0)).rank();
  if (dtype != graph.value(norm.output()).dtype() || rank < 2) return;
  Extents shape(size_t(rank - 1), 1);
  shape[0] = int64_t(affine.scale.size());
  Tensor s(dtype, shape), t(dtype, shape);
  for (size_t c = 0; c < affine.scale.size(); ++c) {
    store_f64(dtype, s.data(), int64_t(c), affine.scale[c]);
    store_f64(dtype, t.data(), int64_t(c), affine.shift[c]);
  }
  const std::string_view names[] = {"x", "s", "t"};
  const std::vector<std::string> who = origins({&norm});
  const ValueId scale = graph.add_constant(norm.name + ".scale", s),
                shift = graph.add_constant(norm.name + ".shift", t);
  const NodeId program = graph.add_program(Program::parse("fma(x, s, t)", names, dtype), {norm.input(0), scale, shift});
  graph.node(program).origin = who;
  graph.node(program).name = norm.name;
  const ValueId out = norm.output();
  graph.replace_uses(out, graph.node(program).output());
  graph.remove(norm);
  decisions.apply(who, 0, 0);
}

// A Mul or Add by constants behind a contraction goes into it.
void fold_scale_or_shift(Graph& graph, Node& node, Decisions& decisions) {
  if (node.program || !(node.is("Mul") || node.is("Add")) || !graph.constant(node.input(1))) return;
  const ValueId x = node.input(0);
  const std::optional<Target> target = target_of(graph, x);
  // A product's shift stays an epilogue: MatMul has no bias input.
  if (!target || (node.is("Add") && !is_convolution(*target->node))) return;
  if (content_uses(graph, x) > 1) {
    decisions.refuse(node, graph.value(x).is_output ? "graph_output" : "other_user",
                     fmt::format("'{}' is needed as it is", graph.value(x).name));
    return;
  }
  if (graph.value(node.output()).shape() != graph.value(x).shape()) {
    decisions.refuse(node, "broadcasts_up", "the constant broadcasts the output to a larger shape");
    return;
  }
  std::optional<std::vector<double>> factors = per_channel(graph, node.input(1), x, *target);
  if (!factors) {
    decisions.refuse(
        node, "not_per_channel",
        fmt::format("the constant '{}' varies along other axes than the output channels; it may still be an epilogue",
                    graph.value(node.input(1)).name));
    return;
  }
  if (graph.value(node.input(1)).dtype() != graph.value(x).dtype() || !decisions.allowed(node)) return;
  if (node.is("Mul") && !keeps_weights_in_range(*factors)) {
    decisions.refuse(node, "not_finite",
                     "a factor is not finite, or out of 1e-12 to 1e12: the weights would not hold it");
    return;
  }
  Affine affine;
  (node.is("Mul") ? affine.scale : affine.shift) = std::move(*factors);
  apply(graph, *target, affine);
  finish(graph, decisions, node, *target->node);
}

}  // namespace

void fold_batch_normalization(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    Node& norm = graph.node(id);
    if (!norm.alive || !norm.is("BatchNormalization") || norm.program) continue;
    const std::optional<Affine> affine = batch_normalization(graph, norm, decisions);
    if (!affine || !decisions.allowed(norm)) continue;
    // A bias that stands between as an Add of its own (as after a ConvTranspose) would part it from the weights.
    if (Node* between = graph.producer(norm.input(0))) fold_scale_or_shift(graph, *between, decisions);
    const ValueId x = norm.input(0);
    const std::optional<Target> target = target_of(graph, x);
    const bool folds = target && is_convolution(*target->node) && target->channels == int64_t(affine->scale.size());
    if (!folds)
      decisions.refuse(norm, "no_contraction",
                       "its input is not a convolution with constant weights; it becomes one multiply-add an element");
    else if (graph.value(x).is_output)
      decisions.refuse(norm, "graph_output",
                       fmt::format("'{}' is an output of the graph, so its value must exist", graph.value(x).name));
    else if (content_uses(graph, x) > 1)
      decisions.refuse(norm, "other_user", fmt::format("'{}' has another user", graph.value(x).name));
    else if (graph.value(x).dtype() != graph.value(norm.output()).dtype())
      decisions.refuse(norm, "dtype", "input and output types differ");
    else {
      apply(graph, *target, *affine);
      finish(graph, decisions, norm, *target->node);
      continue;
    }
    as_program(graph, norm, *affine, decisions);
  }
  graph.remove_dead();
}

void fold_affine(Graph& graph, Decisions& decisions) {
  for (NodeId id : graph.order()) {
    Node& node = graph.node(id);
    if (node.alive) fold_scale_or_shift(graph, node, decisions);
  }
  graph.remove_dead();
}

}  // namespace ridgeline
