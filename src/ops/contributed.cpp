#include "ops/contributed.h"

#include "core/saturate.h"

namespace ridgeline::contributed {

V extent(Builder& b, V x, int axis) {
  const int rank = b.rank(x);
  const int at = axis < 0 ? axis + rank : axis;
  const Dim& dim = b.shape(x)[size_t(at)];
  if (dim.known()) return b.integers_constant({dim.value()});
  return b.op("Gather", {b.op("Shape", {x}), b.integers_constant({at})});
}

V counted(Builder& b, V count) {
  V zero = b.reshape(b.integers_constant({0}), {}), one = b.reshape(b.integers_constant({1}), {});
  return b.op("Range", {zero, b.reshape(count, {}), one});
}

std::vector<V> split(Builder& b, V x, const std::vector<int64_t>& sizes, int64_t axis) {
  return b.ops("Split", {x, b.integers_constant(sizes)}, int(sizes.size()), with({{"axis", axis}}));
}

void copy_integers(const Builder& b, std::initializer_list<std::string_view> names, Attributes& to) {
  for (const std::string_view name : names)
    if (std::vector<int64_t> values = b.integers(name); !values.empty()) to.set(name, std::move(values));
}

namespace {

ValueInfo info_of(const Operand& operand) {
  ValueInfo info;
  info.dtype = operand.dtype;
  info.shape = to_shape(operand.shape());
  info.constant = operand.constant;
  return info;
}

}  // namespace

Cost decomposed_cost(const Problem& problem) {
  std::vector<ValueInfo> infos;
  for (int i = 0; i < problem.op_inputs; ++i) infos.push_back(problem.has(i) ? info_of(problem.input(i)) : ValueInfo{});
  const Graph graph = decompose(*problem.op, problem.attributes, infos, int(problem.outputs.size()));
  Cost cost{.flops = 0, .read_bytes = problem.read_bytes(), .write_bytes = problem.write_bytes()};
  for (const NodeId id : graph.order()) {
    const Node& node = graph.node(id);
    Problem part;
    part.op = node.op;
    part.attributes = node.attributes;
    part.op_inputs = node.op_inputs;
    part.program = node.program;
    bool complete = true;
    const auto operand = [&](ValueId v) {
      Operand o;
      if (v == kNoValue) return o;
      const ValueInfo& info = graph.value(v).info;
      if (!info.shape || !known(*info.shape)) {
        complete = false;
        return o;
      }
      o.dtype = info.dtype;
      o.layout = Layout(extents(*info.shape));
      o.constant = info.constant;
      return o;
    };
    for (const ValueId v : node.inputs) part.inputs.push_back(operand(v));
    for (const ValueId v : node.outputs) part.outputs.push_back(operand(v));
    if (!complete || node.op->kind == OpKind::kMovement) continue;  // moves compute nothing
    const Cost own = cost_of(part);
    cost.flops = saturated_sum(cost.flops, own.flops);
    cost.special = saturated_sum(cost.special, own.special);
  }
  return cost;
}

bool broadcasts_onto(const Shape& from, const Shape& onto) {
  bool fits = from.size() <= onto.size();
  for (size_t a = 0; fits && a < from.size(); ++a)
    fits = from[a].is(1) || same(from[a], onto[a + onto.size() - from.size()]);
  return fits;
}

void require_rank(const Infer& i, int input, int rank, std::string_view what) {
  i.require(i.rank(input) == rank, [&] {
    return fmt::format("input '{}' is {}: {} is wanted", i.op().inputs[input].name, describe(i, input), what);
  });
}

}  // namespace ridgeline::contributed
