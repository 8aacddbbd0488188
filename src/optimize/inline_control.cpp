// Control flow that is settled before the run: an If whose condition is known becomes its branch, a short loop its
// iterations. What is constant around a subgraph becomes constant in it.
#include <algorithm>
#include <set>

#include "ir/control.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

// A loop is unrolled up to so many iterations, and so many nodes in all: beyond, plans grow and kernels repeat.
constexpr int64_t kMostTrips = 8, kMostUnrolled = 64;

std::optional<int64_t> known_integer(const Graph& graph, ValueId v) {
  if (v == kNoValue) return std::nullopt;
  if (const Tensor* constant = graph.constant(v)) {
    if (is_float(constant->dtype()) || constant->elements() != 1) return std::nullopt;
    return constant->i64(0);
  }
  const auto& values = graph.value(v).info.values;
  if (!values || values->size() != 1 || !(*values)[0].known()) return std::nullopt;
  return (*values)[0].value();
}

/// Does a Loop's body hand on the condition that it was given, or true?
bool condition_stays(const Graph& body) {
  ValueId v = body.outputs[0];
  for (const Node* from = body.producer(v); from && from->is("Identity"); from = body.producer(v)) v = from->input(0);
  return v == body.inputs[1] || known_integer(body, v).value_or(0) != 0;
}

/// How many iterations there will be, if that is known.
std::optional<int64_t> known_trips(const Graph& graph, const Node& node, const LoopForm& form) {
  if (form.conditions == 0) {
    const ValueId scanned = node.input(form.carried);
    const std::vector<ScanAxis> axes = scan_axes(node.attributes, false, form.scanned);
    const std::optional<Shape>& shape = graph.value(scanned).info.shape;
    if (!shape) return std::nullopt;
    const int64_t axis = axes[0].axis < 0 ? axes[0].axis + int64_t(shape->size()) : axes[0].axis;
    return (*shape)[size_t(axis)].known() ? std::optional((*shape)[size_t(axis)].value()) : std::nullopt;
  }
  const std::optional<int64_t> count = known_integer(graph, node.input(0));
  const std::optional<int64_t> keep = node.input(1) == kNoValue ? 1 : known_integer(graph, node.input(1));
  if (keep == 0 || (count && *count <= 0)) return 0;
  if (!count || !keep || !condition_stays(body_of(node.attributes, "body"))) return std::nullopt;
  return count;
}

ValueId add_op(Graph& graph, const Node& from, std::string_view op, std::vector<ValueId> inputs,
               Attributes attributes = {}) {
  const NodeId id = graph.add_node(*find_op(op), std::move(inputs), std::move(attributes), 1, {},
                                   fmt::format("{}/{}_{}", from.name, op, graph.node_capacity()));
  graph.node(id).origin = from.origin;
  return graph.node(id).output();
}

ValueId add_integers(Graph& graph, std::vector<int64_t> values) {
  return graph.add_constant({}, Tensor::from<int64_t>({int64_t(values.size())}, values));
}

ValueId add_integer(Graph& graph, DType dtype, int64_t value, const std::optional<Shape>& like) {
  Tensor tensor = Tensor::zeros(dtype, like && like->size() == 1 ? Extents{1} : Extents{});
  store_i64(dtype, tensor.data(), 0, value);
  return graph.add_constant({}, tensor);
}

/// Copies the body's nodes; returns where its outputs are. `suffix` tells iterations apart.
std::vector<ValueId> inlined(Graph& graph, const Graph& body, const std::vector<ValueId>& inputs,
                             const std::string& suffix) {
  std::vector<ValueId> at(size_t(body.value_count()), kNoValue);
  for (size_t i = 0; i < inputs.size(); ++i) at[size_t(body.inputs[i])] = inputs[i];
  const auto here = [&](ValueId v) {
    if (v == kNoValue || at[size_t(v)] != kNoValue) return v == kNoValue ? v : at[size_t(v)];
    const Value& value = body.value(v);
    at[size_t(v)] = graph.add_constant(value.name, value.info.constant);
    graph.value(at[size_t(v)]).constant_id = value.constant_id;
    return at[size_t(v)];
  };
  for (const NodeId id : body.order()) {
    const Node& node = body.node(id);
    std::vector<ValueId> read;
    for (const ValueId v : node.inputs) read.push_back(here(v));
    std::vector<std::string> names;
    for (const ValueId v : node.outputs) names.push_back(v == kNoValue ? "" : body.value(v).name + suffix);
    const NodeId copy =
        graph.add_node(*node.op, std::move(read), node.attributes, int(names.size()), names, node.name + suffix);
    graph.node(copy).origin = node.origin;
    for (size_t o = 0; o < node.outputs.size(); ++o)
      if (node.outputs[o] != kNoValue) at[size_t(node.outputs[o])] = graph.node(copy).output(int(o));
  }
  std::vector<ValueId> outputs;
  for (const ValueId v : body.outputs) outputs.push_back(here(v));
  return outputs;
}

bool has_programs(const Graph& body) {
  for (const NodeId id : body.order())
    if (body.node(id).program) return true;
  return false;
}

void replace(Graph& graph, Node& node, const std::vector<ValueId>& results) {
  const std::vector<ValueId> old = node.outputs;
  std::set<ValueId> given;
  for (size_t o = 0; o < old.size(); ++o) {
    if (old[o] == kNoValue) continue;
    ValueId to = results[o];
    // An output of the graph needs a value of its own to keep its name.
    const Value& value = graph.value(to);
    if (graph.value(old[o]).is_output &&
        (value.is_input || value.is_constant() || value.is_output || !given.insert(to).second))
      to = add_op(graph, node, "Identity", {to});
    graph.replace_uses(old[o], to);
  }
  graph.remove(node);
}

bool inline_if(Graph& graph, Node& node, Decisions& decisions) {
  const std::optional<int64_t> condition = known_integer(graph, node.input(0));
  if (!condition) return false;
  const Graph& body = body_of(node.attributes, *condition ? "then_branch" : "else_branch");
  if (has_programs(body) || !decisions.allowed(node)) return false;
  const std::vector<ValueId> captured(node.inputs.begin() + 1, node.inputs.end());
  const std::vector<ValueId> results = inlined(graph, body, captured, "");
  decisions.apply(origins({&node}), 0, 1);
  replace(graph, node, results);
  return true;
}

/// What an iteration sees of a scanned input.
ValueId part_of(Graph& graph, const Node& node, ValueId scanned, int64_t axis, int64_t index) {
  const ValueId slice =
      add_op(graph, node, "Slice",
             {scanned, add_integers(graph, {index}), add_integers(graph, {index + 1}), add_integers(graph, {axis})});
  return add_op(graph, node, "Squeeze", {slice, add_integers(graph, {axis})});
}

bool unroll(Graph& graph, Node& node, Decisions& decisions) {
  const LoopForm form = loop_form(*node.op, node.attributes, int(node.inputs.size()));
  const std::optional<int64_t> trips = known_trips(graph, node, form);
  if (!trips) return false;
  const Graph body = body_of(node.attributes, "body");
  if (has_programs(body)) return false;
  if (*trips > kMostTrips || *trips * body.live_nodes() > kMostUnrolled) {
    decisions.refuse(node, "too_many_iterations",
                     fmt::format("{} iterations of {} nodes: up to {} and {} nodes in all are unrolled", *trips,
                                 body.live_nodes(), kMostTrips, kMostUnrolled));
    return false;
  }
  for (const ValueId v : node.outputs)
    if (!graph.value(v).info.shape || (*trips == 0 && !known(graph.value(v).shape()))) return false;
  if (!decisions.allowed(node)) return false;
  const std::vector<ScanAxis> in = scan_axes(node.attributes, false, form.scanned);
  const std::vector<ScanAxis> out = scan_axes(node.attributes, true, form.collected);
  std::vector<ValueId> now = node.inputs;
  std::vector<std::vector<ValueId>> collected(static_cast<size_t>(form.collected));
  for (int64_t trip = 0; trip < *trips; ++trip) {
    if (form.conditions > 0) {
      now[0] = add_integer(graph, DType::kI64, trip, body.value(body.inputs[0]).info.shape);
      now[1] = add_integer(graph, DType::kBool, 1, body.value(body.inputs[1]).info.shape);
    }
    for (int k = 0; k < form.scanned; ++k) {
      const auto at = size_t(form.conditions + form.carried + k);
      const ScanAxis& axis = in[size_t(k)];
      now[at] = part_of(graph, node, node.inputs[at], axis.axis, axis.backwards ? *trips - 1 - trip : trip);
    }
    const std::vector<ValueId> results = inlined(graph, body, now, fmt::format("#{}", trip));
    for (int k = 0; k < form.carried; ++k) now[size_t(form.conditions + k)] = results[size_t(form.first_result() + k)];
    for (int k = 0; k < form.collected; ++k)
      collected[size_t(k)].push_back(results[size_t(form.first_result() + form.carried + k)]);
  }
  std::vector<ValueId> results(now.begin() + form.conditions, now.begin() + form.conditions + form.carried);
  for (int k = 0; k < form.collected; ++k) {
    const Value& whole = graph.value(node.output(form.carried + k));
    std::vector<ValueId>& parts = collected[size_t(k)];
    if (parts.empty()) {
      results.push_back(graph.add_constant({}, Tensor::zeros(whole.dtype(), extents(whole.shape()))));
      continue;
    }
    const int64_t given = out[size_t(k)].axis, axis = given < 0 ? given + whole.rank() : given;
    for (ValueId& part : parts) part = add_op(graph, node, "Unsqueeze", {part, add_integers(graph, {axis})});
    if (out[size_t(k)].backwards) std::reverse(parts.begin(), parts.end());
    Attributes attributes;
    attributes.set("axis", axis);
    results.push_back(add_op(graph, node, "Concat", parts, attributes));
  }
  decisions.apply(origins({&node}), 0, 1);
  replace(graph, node, results);
  return true;
}

/// Captured constants become the bodies' own; what no body reads is captured no longer.
void tidy_captures(Graph& graph, Node& node) {
  const int first = node.is("If") ? 1 : node.op_inputs - int(node.attributes.integer(kCaptures, 0));
  const int formals = node.is("If") ? 0 : first;
  std::vector<std::shared_ptr<Graph>> bodies;
  for (const std::string_view key : bodies_of(*node.op))
    bodies.push_back(std::make_shared<Graph>(body_of(node.attributes, key)));
  std::vector<ValueId> inputs(node.inputs.begin(), node.inputs.begin() + first);
  std::vector<ValueId> dropped;
  for (size_t i = size_t(first); i < node.inputs.size(); ++i) {
    const ValueId outer = node.inputs[i];
    const size_t at = size_t(formals) + i - size_t(first) - dropped.size();
    const Tensor* constant = graph.constant(outer);
    bool read = false;
    for (const auto& body : bodies) read = read || body->uses(body->inputs[at]) > 0;
    if (!constant && read) {
      inputs.push_back(outer);
      continue;
    }
    for (const auto& body : bodies) {
      const ValueId own = body->inputs[at];
      if (constant && body->uses(own) > 0) {
        body->make_constant(own, *constant);
        body->value(own).constant_id = graph.value(outer).constant_id;
      } else {
        std::erase(body->inputs, own);
        body->value(own).is_input = false;
      }
    }
    dropped.push_back(outer);
  }
  if (dropped.empty()) return;
  const std::vector<std::string_view> keys = bodies_of(*node.op);
  for (size_t b = 0; b < bodies.size(); ++b)
    node.attributes.set(keys[b], std::shared_ptr<const Graph>(std::move(bodies[b])));
  if (!node.is("If")) node.attributes.set(kCaptures, int64_t(inputs.size()) - first);
  const int count = int(inputs.size());
  graph.set_inputs(node, std::move(inputs), count);
  for (const ValueId v : dropped) release_unread(graph, v);
}

}  // namespace

void inline_control(Graph& graph, Decisions& decisions) {
  bool any = false;
  for (NodeId id = 0; id < graph.node_capacity() && !any; ++id)
    any = graph.node(id).alive && has_bodies(*graph.node(id).op);
  if (!any) return;
  fold_constants(graph, decisions);                        // conditions that are computed from constants
  for (NodeId id = 0; id < graph.node_capacity(); ++id) {  // nodes of what was inlined come last: they are seen too
    Node& node = graph.node(id);
    if (!node.alive || node.outputs.empty() || !has_bodies(*node.op)) continue;
    tidy_captures(graph, node);
    if (node.is("If"))
      inline_if(graph, node, decisions);
    else
      unroll(graph, node, decisions);
  }
  graph.infer();
  graph.remove_dead();
}

}  // namespace ridgeline
