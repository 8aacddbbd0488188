#include "ir/interpret.h"

#include "ir/control.h"
#include "ir/reference.h"

namespace ridgeline {
namespace {

/// An elementwise node with a program of its own: one that a pass composed.
std::vector<Tensor> run_program(const Node& node, const std::vector<Tensor>& in) {
  const Program& program = *node.program;
  std::vector<Tensor> out;
  std::vector<ScalarValue> x(program.inputs.size()), y(program.outputs.size());
  Shape joined;
  for (const Tensor& t : in) {
    Shape s = to_shape(t.shape());
    if (s.size() > joined.size()) joined.insert(joined.begin(), s.size() - joined.size(), Dim(1));
    for (size_t a = 0; a < s.size(); ++a)
      broadcast(joined[a + joined.size() - s.size()], s[a], joined[a + joined.size() - s.size()]);
  }
  const Extents shape = extents(joined);
  for (size_t o = 0; o < node.outputs.size(); ++o) out.push_back(Tensor::zeros(program.output_dtype(int(o)), shape));
  for (Index at(shape); at.more(); ++at) {
    for (size_t i = 0; i < x.size(); ++i) {
      const int64_t k = broadcast_index(in[i].shape(), at.at());
      if (is_float(in[i].dtype()))
        x[i].f = in[i].f64(k);
      else
        x[i].i = in[i].i64(k);
    }
    evaluate(program, x, y);
    for (size_t o = 0; o < out.size(); ++o) {
      if (is_float(out[o].dtype()))
        store_f64(out[o].dtype(), out[o].data(), at.flat(), y[o].f);
      else
        store_i64(out[o].dtype(), out[o].data(), at.flat(), y[o].i);
    }
  }
  return out;
}

}  // namespace

std::vector<Tensor> interpret(const Graph& graph, const std::vector<Tensor>& inputs, const InterpretOptions& options) {
  if (inputs.size() != graph.inputs.size())
    fail(ErrorCode::kBadInput, "the model has {} inputs, {} are given", graph.inputs.size(), inputs.size());
  std::vector<Tensor> values(size_t(graph.value_count()));
  std::vector<int> uses_left(values.size(), 0);
  auto set = [&](ValueId v, const Tensor& t) {
    values[size_t(v)] = t;
    if (options.observe) options.observe(v, t);
    if (!options.replace) return;
    if (const Tensor other = options.replace(v, t)) values[size_t(v)] = other;
  };
  for (size_t i = 0; i < inputs.size(); ++i) set(graph.inputs[i], inputs[i]);
  const std::vector<NodeId> order = graph.order();
  for (NodeId id : order)
    for (ValueId v : graph.node(id).inputs)
      if (v != kNoValue) ++uses_left[size_t(v)];
  for (ValueId v : graph.outputs) ++uses_left[size_t(v)];
  auto value_of = [&](ValueId v) -> Tensor {
    if (v == kNoValue) return {};
    if (const Tensor* c = graph.constant(v)) return *c;
    return values[size_t(v)];
  };
  for (NodeId id : order) {
    const Node& node = graph.node(id);
    std::vector<Tensor> in;
    for (ValueId v : node.inputs) in.push_back(value_of(v));
    std::vector<Tensor> out;
    try {
      if (node.program && node.op->is_elementwise())
        out = run_program(node, in);
      else if (node.program)
        fail(ErrorCode::kUnsupported, "unsupported: the reference runs graphs before fusion");
      else
        out = run_reference_within(*node.op, node.attributes, in, int(node.outputs.size()), options.threads,
                                   options.in_loop ? LoopLimits::kElements : INT64_MAX);
    } catch (const Error& error) {
      fail(error.code(), "node '{}' ({}): {}", node.name, node.op->name, error.what());
    }
    for (size_t o = 0; o < out.size(); ++o)
      if (node.outputs[o] != kNoValue) set(node.outputs[o], out[o]);
    for (ValueId v : node.inputs)
      if (v != kNoValue && --uses_left[size_t(v)] == 0) values[size_t(v)] = {};
  }
  std::vector<Tensor> results;
  for (ValueId v : graph.outputs) results.push_back(value_of(v));
  return results;
}

}  // namespace ridgeline
