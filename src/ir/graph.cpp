#include "ir/graph.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <queue>
#include <unordered_set>

namespace ridgeline {
namespace {

// Identities of constants are unique in the process, so that graphs copied from one model share packed weights.
uint64_t next_constant_id() {
  static std::atomic<uint64_t> next{1};
  return next++;
}

constexpr OpSchema kElementwise = {
    .name = "Elementwise",
    .domain = "ridgeline",
    .family = "elementwise",
    .kind = OpKind::kElementwise,
    .doc = "A fused chain of elementwise operators: its Program is the node's own.",
    .inputs = {{"x", kAll, "", false, true}},
    .outputs = {{"y", false, true}},
    .no_gradient = "made by fusion, which runs after differentiation",
    .samples = {"x0=f32[2,3,65] x1=f32[65] program='relu(x0 * x1 + 0.5)'", "x0=f32[0,4] program='x0 * sigmoid(x0)'",
                "x0=f16[7] x1=f16[] program='tanh(x0) - x1'"},
};

}  // namespace

const OpSchema& elementwise_op() { return kElementwise; }

ValueId Graph::add_value(std::string name) {
  if (name.empty() || by_name_.count(name)) name = fresh_name(name.empty() ? "t" : name);
  const ValueId id = int(values_.size());
  by_name_[name] = id;
  values_.push_back({});
  values_.back().name = std::move(name);
  users_.emplace_back();
  return id;
}

std::string Graph::fresh_name(std::string_view stem) {
  std::string name;
  do name = fmt::format("{}.{}", stem, fresh_++);
  while (by_name_.count(name));
  return name;
}

void Graph::rename(ValueId value, const std::string& name) {
  assert(!by_name_.count(name));
  by_name_.erase(values_[size_t(value)].name);
  by_name_[name] = value;
  values_[size_t(value)].name = name;
}

ValueId Graph::add_input(std::string name, DType dtype, std::optional<Shape> shape) {
  const ValueId id = add_value(std::move(name));
  values_[size_t(id)].info.dtype = dtype;
  values_[size_t(id)].info.shape = std::move(shape);
  values_[size_t(id)].is_input = true;
  inputs.push_back(id);
  return id;
}

ValueId Graph::add_constant(std::string name, Tensor tensor) {
  const ValueId id = add_value(std::move(name));
  make_constant(id, std::move(tensor));
  return id;
}

void Graph::make_constant(ValueId id, Tensor tensor) {
  Value& v = values_[size_t(id)];
  if (Node* from = producer(id)) {
    std::replace(from->outputs.begin(), from->outputs.end(), id, kNoValue);
    v.producer = kNoNode;
  }
  if (v.is_input) {
    std::erase(inputs, id);
    v.is_input = false;
  }
  v.info.dtype = tensor.dtype();
  v.info.shape = to_shape(tensor.shape());
  v.info.values.reset();
  v.info.constant = std::move(tensor);
  v.constant_id = next_constant_id();
}

NodeId Graph::add_node(const OpSchema& op, std::vector<ValueId> node_inputs, Attributes attributes, int output_count,
                       std::vector<std::string> output_names, std::string node_name) {
  const NodeId id = int(nodes_.size());
  nodes_.emplace_back();
  {
    Node& node = nodes_.back();
    node.id = id;
    node.op = &op;
    node.attributes = std::move(attributes);
    node.inputs = std::move(node_inputs);
    node.op_inputs = int(node.inputs.size());
    node.name = node_name.empty() ? fmt::format("{}_{}", op.name, id) : std::move(node_name);
  }
  for (ValueId v : nodes_.back().inputs) add_use(v, id);
  for (int o = 0; o < output_count; ++o) {
    const bool named = o < int(output_names.size());
    if (named && output_names[size_t(o)].empty()) {
      nodes_[size_t(id)].outputs.push_back(kNoValue);
      continue;
    }
    const ValueId v = add_value(named ? output_names[size_t(o)] : nodes_[size_t(id)].name);
    values_[size_t(v)].producer = id;
    nodes_[size_t(id)].outputs.push_back(v);
  }
  try {
    infer(nodes_[size_t(id)]);
  } catch (const NeedsValues&) {
    // The shape stays unknown until the binding supplies what it depends on; infer() lists it.
  }
  return id;
}

NodeId Graph::add_program(Program program, std::vector<ValueId> program_inputs, std::string output_name) {
  const NodeId id = int(nodes_.size());
  nodes_.emplace_back();
  const int outputs_wanted = int(program.outputs.size());
  {
    Node& node = nodes_.back();
    node.id = id;
    node.op = &elementwise_op();
    node.program = std::make_shared<const Program>(std::move(program));
    node.inputs = std::move(program_inputs);
    node.op_inputs = int(node.inputs.size());
    node.name = fmt::format("Elementwise_{}", id);
  }
  for (ValueId v : nodes_.back().inputs) add_use(v, id);
  for (int o = 0; o < outputs_wanted; ++o) {
    const ValueId v = add_value(o == 0 ? output_name : std::string());
    values_[size_t(v)].producer = id;
    nodes_[size_t(id)].outputs.push_back(v);
  }
  infer(nodes_[size_t(id)]);
  return id;
}

void Graph::mark_output(ValueId value) {
  outputs.push_back(value);
  values_[size_t(value)].is_output = true;
}

int Graph::live_nodes() const {
  return int(std::count_if(nodes_.begin(), nodes_.end(), [](const Node& n) { return n.alive; }));
}

std::vector<NodeId> Graph::order() const {
  std::vector<int> waiting(nodes_.size(), 0);
  std::priority_queue<NodeId, std::vector<NodeId>, std::greater<>> ready;
  int live = 0;
  for (const Node& node : nodes_) {
    if (!node.alive) continue;
    ++live;
    for (ValueId v : node.inputs)
      if (v != kNoValue && values_[size_t(v)].producer != kNoNode) ++waiting[size_t(node.id)];
    if (waiting[size_t(node.id)] == 0) ready.push(node.id);
  }
  std::vector<NodeId> sorted;
  sorted.reserve(size_t(live));
  while (!ready.empty()) {
    const NodeId id = ready.top();
    ready.pop();
    sorted.push_back(id);
    for (ValueId v : nodes_[size_t(id)].outputs) {
      if (v == kNoValue) continue;
      for (NodeId user : users_[size_t(v)])
        if (--waiting[size_t(user)] == 0) ready.push(user);
    }
  }
  if (int(sorted.size()) != live) fail(ErrorCode::kBadModel, "the graph has a cycle");
  return sorted;
}

Node* Graph::only_user(ValueId value) {
  return uses(value) == 1 && users(value).size() == 1 ? &nodes_[size_t(users(value)[0])] : nullptr;
}

ValueId Graph::find_value(std::string_view name) const {
  const auto it = by_name_.find(std::string(name));
  return it == by_name_.end() ? kNoValue : it->second;
}

void Graph::add_use(ValueId value, NodeId node) {
  if (value != kNoValue) users_[size_t(value)].push_back(node);
}

void Graph::drop_use(ValueId value, NodeId node) {
  if (value == kNoValue) return;
  auto& list = users_[size_t(value)];
  const auto it = std::find(list.begin(), list.end(), node);
  assert(it != list.end());
  list.erase(it);
}

void Graph::set_input(Node& node, int input, ValueId value) {
  drop_use(node.inputs[size_t(input)], node.id);
  node.inputs[size_t(input)] = value;
  add_use(value, node.id);
}

void Graph::set_inputs(Node& node, std::vector<ValueId> next, int op_inputs) {
  for (ValueId v : node.inputs) drop_use(v, node.id);
  node.inputs = std::move(next);
  node.op_inputs = op_inputs;
  for (ValueId v : node.inputs) add_use(v, node.id);
}

void Graph::replace_uses(ValueId from, ValueId to) {
  if (from == to) return;
  const std::vector<NodeId> readers = users_[size_t(from)];
  for (NodeId id : readers) {
    Node& node = nodes_[size_t(id)];
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.inputs[i] == from) set_input(node, int(i), to);
  }
  Value &old = values_[size_t(from)], &next = values_[size_t(to)];
  // The name goes with the meaning: what `from` was, `to` is now. It must be free to take it: no input, constant or
  // output under a name of its own.
  if (!next.is_input && !next.is_constant() && !next.is_output) {
    std::swap(old.name, next.name);
    by_name_[old.name] = from;
    by_name_[next.name] = to;
  }
  if (!old.is_output) return;
  std::replace(outputs.begin(), outputs.end(), from, to);
  old.is_output = false;
  next.is_output = true;
}

void Graph::set_output(Node& node, int output, ValueId value) {
  const ValueId old = node.outputs[size_t(output)];
  if (old != kNoValue) values_[size_t(old)].producer = kNoNode;
  if (Node* from = producer(value)) std::replace(from->outputs.begin(), from->outputs.end(), value, kNoValue);
  node.outputs[size_t(output)] = value;
  values_[size_t(value)].producer = node.id;
}

void Graph::remove(Node& node) {
  for (ValueId v : node.inputs) drop_use(v, node.id);
  for (ValueId v : node.outputs) {
    if (v == kNoValue) continue;
    assert(uses(v) == 0);
    values_[size_t(v)].producer = kNoNode;
  }
  node.inputs.clear();
  node.outputs.clear();
  node.alive = false;
}

int Graph::remove_dead() {
  int removed = 0;
  std::vector<NodeId> sorted = order();
  for (auto it = sorted.rbegin(); it != sorted.rend(); ++it) {
    Node& node = nodes_[size_t(*it)];
    const bool used =
        std::any_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return v != kNoValue && uses(v) > 0; });
    if (used) continue;
    remove(node);
    ++removed;
  }
  for (size_t v = 0; v < values_.size(); ++v) {
    // A constant nobody reads gives its memory back.
    if (values_[v].is_constant() && !values_[v].is_output && users_[v].empty()) values_[v].info.constant = {};
  }
  return removed;
}

void Graph::infer(Node& node) {
  std::vector<const ValueInfo*> infos;
  for (int i = 0; i < node.op_inputs; ++i)
    infos.push_back(node.inputs[size_t(i)] == kNoValue ? nullptr : &values_[size_t(node.inputs[size_t(i)])].info);
  std::vector<ValueInfo> results;
  if (node.op == &kElementwise) {
    Infer i(kElementwise, node.attributes, node.name, infos, int(node.outputs.size()));
    std::vector<int> all;
    for (int k = 0; k < i.inputs(); ++k) all.push_back(k);
    const Shape shape = i.broadcast_shape(all);
    for (int o = 0; o < i.outputs(); ++o) i.output(o, node.program->output_dtype(o), shape);
    results = i.results();
  } else {
    results = infer_node(*node.op, node.attributes, node.name, infos, int(node.outputs.size()));
  }
  // An epilogue keeps the shape of the operator's result, may change its dtype, and changes its content.
  if (node.program && node.op != &kElementwise && !node.op->is_elementwise()) {
    results[0].dtype = node.program->output_dtype();
    results[0].values.reset();
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    if (node.outputs[o] == kNoValue) continue;
    ValueInfo& info = values_[size_t(node.outputs[o])].info;
    info.dtype = results[o].dtype;
    info.shape = std::move(results[o].shape);
    info.values = std::move(results[o].values);
  }
}

std::vector<Graph::Unresolved> Graph::infer() {
  std::vector<Unresolved> unresolved;
  for (NodeId id : order()) {
    Node& node = nodes_[size_t(id)];
    try {
      infer(node);
    } catch (const NeedsValues& error) {
      unresolved.push_back({id, error.what(), node.input(error.input())});
      for (ValueId v : node.outputs)
        if (v != kNoValue) values_[size_t(v)].info.shape.reset();
    }
  }
  return unresolved;
}

std::vector<std::string> Graph::verify() const {
  std::vector<std::string> faults;
  std::unordered_set<std::string_view> names;
  names.reserve(values_.size());
  for (size_t v = 0; v < values_.size(); ++v) {
    if (!names.insert(values_[v].name).second)
      faults.push_back(fmt::format("two values are named '{}'", values_[v].name));
    const NodeId p = values_[v].producer;
    if (p != kNoNode &&
        (!nodes_[size_t(p)].alive || std::find(nodes_[size_t(p)].outputs.begin(), nodes_[size_t(p)].outputs.end(),
                                               int(v)) == nodes_[size_t(p)].outputs.end())) {
      faults.push_back(fmt::format("'{}' names a producer that does not write it", values_[v].name));
    }
  }
  // Who reads what, once from the nodes and once as the values have it: sorted and compared as a whole. Looking each
  // reader up took half of the time of a model of 20,000 nodes that all read one value.
  std::vector<std::pair<ValueId, NodeId>> read, listed;
  for (const Node& node : nodes_) {
    if (!node.alive) continue;
    for (const ValueId v : node.inputs)
      if (v != kNoValue) read.emplace_back(v, node.id);
  }
  for (size_t v = 0; v < users_.size(); ++v)
    for (const NodeId u : users_[v]) listed.emplace_back(ValueId(v), u);
  std::sort(read.begin(), read.end());
  std::sort(listed.begin(), listed.end());
  if (read != listed) {
    const auto [r, l] = std::mismatch(read.begin(), read.end(), listed.begin(), listed.end());
    const auto& [v, u] = r == read.end() || (l != listed.end() && *l < *r) ? *l : *r;
    faults.push_back(
        fmt::format("the users of '{}' are out of step at node '{}'", values_[size_t(v)].name, nodes_[size_t(u)].name));
  }
  for (const Node& node : nodes_) {
    if (!node.alive) continue;
    for (ValueId v : node.inputs) {
      if (v == kNoValue) continue;
      const Value& value = values_[size_t(v)];
      if (value.producer == kNoNode && !value.is_input && !value.is_constant())
        faults.push_back(fmt::format("node '{}' reads '{}', which nobody writes", node.name, value.name));
    }
    if (node.program && int(node.program->inputs.size()) !=
                            int(node.inputs.size()) - (node.op->is_elementwise() ? 0 : node.op_inputs - 1)) {
      faults.push_back(fmt::format("node '{}': its program has {} inputs", node.name, node.program->inputs.size()));
    }
  }
  for (ValueId v : outputs) {
    if (values_[size_t(v)].producer == kNoNode && !values_[size_t(v)].is_input && !values_[size_t(v)].is_constant()) {
      faults.push_back(fmt::format("the graph's output '{}' is written by nobody", values_[size_t(v)].name));
    }
  }
  if (!faults.empty()) return faults;
  try {
    Graph copy = *this;  // shares tensors
    copy.infer();
    for (size_t v = 0; v < values_.size(); ++v) {
      const ValueInfo &a = values_[v].info, &b = copy.values_[v].info;
      if (values_[v].producer == kNoNode || !a.shape || !b.shape) continue;
      if (a.dtype != b.dtype || *a.shape != *b.shape) {
        faults.push_back(fmt::format("'{}' is {}{}, inference says {}{}", values_[v].name, ridgeline::name(a.dtype),
                                     ridgeline::text(*a.shape), ridgeline::name(b.dtype), ridgeline::text(*b.shape)));
      }
    }
  } catch (const Error& error) {
    faults.push_back(error.what());
  }
  return faults;
}

void Graph::bind(const Bindings& bindings) {
  for (Value& v : values_) {
    if (v.info.shape)
      for (Dim& d : *v.info.shape) d = d.bind(bindings);
    if (v.info.values)
      for (Dim& d : *v.info.values) d = d.bind(bindings);
  }
}

std::vector<std::string> Graph::symbols() const {
  std::vector<std::string> names;
  for (ValueId v : inputs) {
    if (!values_[size_t(v)].info.shape) continue;
    for (const Dim& d : values_[size_t(v)].shape()) d.collect_symbols(names);
  }
  return names;
}

std::string Graph::text() const {
  std::string out = fmt::format("graph {}\n", name);
  auto spell = [&](ValueId v) {
    if (v == kNoValue) return std::string("-");
    const Value& value = values_[size_t(v)];
    const std::string shape = value.info.shape ? ridgeline::text(*value.info.shape) : "[?]";
    return fmt::format("{}:{}{}{}", value.name, ridgeline::name(value.dtype()), shape,
                       value.is_constant()   ? "!"
                       : value.channels_last ? "~"
                                             : "");
  };
  for (ValueId v : inputs) out += "  input " + spell(v) + "\n";
  for (NodeId id : order()) {
    const Node& node = nodes_[size_t(id)];
    std::string line = "  ";
    for (size_t o = 0; o < node.outputs.size(); ++o) line += (o ? ", " : "") + spell(node.outputs[o]);
    line += fmt::format(" = {}(", node.op->name);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      line += (i ? int(i) == node.op_inputs ? " | " : ", " : "") + spell(node.inputs[i]);
    line += ")";
    if (!node.attributes.empty()) line += " {" + node.attributes.text() + "}";
    if (node.program) line += " <" + node.program->text() + ">";
    out += line + "\n";
    for (const auto& [key, attribute] : node.attributes) {
      const auto* body = std::get_if<std::shared_ptr<const Graph>>(&attribute);
      if (!body) continue;
      const std::string inner = (*body)->text();
      for (size_t at = 0; at < inner.size();) {
        const size_t end = std::min(inner.find('\n', at), inner.size());
        out += fmt::format("    {}{}\n", at == 0 ? key + " = " : "", inner.substr(at, end - at));
        at = end + 1;
      }
    }
  }
  for (ValueId v : outputs) out += "  output " + spell(v) + "\n";
  return out;
}

}  // namespace ridgeline
