// Convolutions with constant weights in bf16: x and w are rounded, sums, bias and epilogue stay f32, and results that
// other convolutions read, also as residuals, are stored in bf16, so that half the bytes move between layers.
#include <algorithm>
#include <cmath>
#include <map>

#include "optimize/passes.h"

namespace ridgeline {
namespace {

Tensor rounded(const Tensor& w) {
  Tensor q(DType::kBF16, w.shape());
  const float* from = w.as<float>();
  uint16_t* to = static_cast<uint16_t*>(q.data());
  for (int64_t i = 0; i < w.elements(); ++i) to[i] = f32_to_bf16(from[i]);
  return q;
}

bool all_finite(const Tensor& w) {
  return std::all_of(w.as<float>(), w.as<float>() + w.elements(), [](float x) { return std::isfinite(x); });
}

/// Input k of the program arrives in bf16.
void read_as_bf16(Program& p, int k) {
  const int first = p.first_result();
  const auto moved = [&](int operand) { return operand >= first ? operand + 1 : operand == k ? first : operand; };
  for (Instruction& in : p.code)
    for (int16_t* operand : {&in.a, &in.b, &in.c}) *operand = int16_t(moved(*operand));
  for (int& out : p.outputs) out = moved(out);
  p.code.insert(p.code.begin(), {ScalarOp::kCast, DType::kF32, int16_t(k)});
  p.inputs[size_t(k)].dtype = DType::kBF16;
}

void write_as_bf16(Program& p) {
  p.code.push_back({ScalarOp::kCast, DType::kBF16, int16_t(p.outputs[0])});
  p.outputs[0] = p.operands() - 1;
}

Program cast_program(DType from, DType to) {
  Program p;
  p.inputs = {{"x", from}};
  p.code = {{ScalarOp::kCast, to, 0}};
  p.outputs = {1};
  return p;
}

class Lowering {
 public:
  Lowering(Graph& graph, Decisions& decisions) : graph_(graph), decisions_(decisions) {}

  void run() {
    for (NodeId id : graph_.order())
      if (wanted(graph_.node(id))) lowered_[id] = kNoNode;
    for (NodeId id : graph_.order())
      if (lowered_.count(id)) lower(id);
    finish();
  }

 private:
  bool wanted(const Node& node) {
    if (!node.alive || !node.is("Conv") || node.outputs.size() != 1) return false;
    const Tensor* w = graph_.constant(node.input(1));
    const Value& y = graph_.value(node.output());
    if (!w || w->dtype() != DType::kF32 || y.dtype() != DType::kF32 || w->rank() < 3 || w->rank() > 4) return false;
    if (node.op_inputs > 2 && node.input(2) != kNoValue && !graph_.constant(node.input(2))) {
      decisions_.refuse(node, "bias", "its bias is no constant");
      return false;
    }
    if (!all_finite(*w)) {
      decisions_.refuse(node, "not_finite", "its weights hold infinities or NaN");
      return false;
    }
    if (node.program) {
      const auto floats = [](const auto& x) { return x.dtype == DType::kF32; };
      const Program& p = *node.program;
      if (p.outputs.size() != 1 || !std::all_of(p.inputs.begin(), p.inputs.end(), floats) ||
          int(p.code.size()) + 2 + int(p.inputs.size()) > Program::kMostInstructions)
        return false;
    }
    return decisions_.allowed(node);
  }

  bool is_pool(const Node& node) const { return node.is("MaxPool") && node.outputs.size() == 1 && !node.program; }
  /// Does a lowered convolution read the value, perhaps through a pool?
  bool wants_bf16(ValueId v) const {
    const std::vector<NodeId>& users = graph_.users(v);
    return std::any_of(users.begin(), users.end(), [&](NodeId u) {
      const Node& user = graph_.node(u);
      return lowered_.count(u) > 0 || (is_pool(user) && wants_bf16(user.output()));
    });
  }

  /// The value in bf16 where that is at hand.
  ValueId found(ValueId v) {
    if (const auto at = bf16_.find(v); at != bf16_.end()) return at->second;
    const Node* from = graph_.producer(v);
    if (!from || !is_pool(*from)) return kNoValue;
    const ValueId source = found(from->input(0));
    if (source == kNoValue) return kNoValue;
    const NodeId pool = graph_.add_node(*from->op, {source}, from->attributes, 1, {}, from->name);
    graph_.node(pool).origin = origins({graph_.producer(v)});
    return bf16_[v] = graph_.node(pool).output();
  }
  ValueId in_bf16(ValueId v) {
    if (const ValueId at = found(v); at != kNoValue) return at;
    const NodeId cast = graph_.add_program(cast_program(DType::kF32, DType::kBF16), {v});
    if (const Node* from = graph_.producer(v)) graph_.node(cast).origin = origins({from});
    return bf16_[v] = graph_.node(cast).output();
  }

  void lower(NodeId id) {
    const Node& from = graph_.node(id);
    const ValueId y = from.output(), weights = from.input(1);
    const ValueId bias = from.op_inputs > 2 ? from.input(2) : kNoValue;
    const int rank = graph_.value(y).rank(), own = from.op_inputs;
    Program program;
    if (from.program) {
      program = *from.program;
    } else {
      program.inputs = {{"v", DType::kF32}};
      program.outputs = {0};
    }
    std::vector<ValueId> operands(from.inputs.begin() + own, from.inputs.end());
    if (bias != kNoValue) {
      Program add;
      add.inputs = {{"v", DType::kF32}, {"bias", DType::kF32}};
      add.code = {{ScalarOp::kAdd, DType::kF32, 0, 1}};
      add.outputs = {2};
      program = *Program::compose(add, 0, program, 0);
      const Tensor& b = *graph_.constant(bias);
      Extents shape(size_t(rank) - 1, 1);
      shape[0] = b.elements();
      Tensor column(DType::kF32, shape);
      std::copy_n(b.as<float>(), b.elements(), column.as<float>());
      operands.insert(operands.begin(), graph_.add_constant(graph_.value(bias).name + ".column", column));
    }
    for (size_t k = 0; k < operands.size(); ++k) {
      if (graph_.constant(operands[k])) continue;
      const ValueId narrow = found(operands[k]);
      if (narrow == kNoValue) continue;
      operands[k] = narrow;
      read_as_bf16(program, int(k) + 1);
    }
    read_as_bf16(program, 0);
    const bool stores = wants_bf16(y);
    if (stores) write_as_bf16(program);
    const Tensor& w = *graph_.constant(weights);
    std::vector<ValueId> inputs = {in_bf16(from.input(0)),
                                   graph_.add_constant(graph_.value(weights).name + ".bf16", rounded(w))};
    const NodeId to = graph_.add_node(*from.op, inputs, from.attributes, 1, {}, from.name);
    Node& node = graph_.node(to);
    node.origin = origins({&graph_.node(id)});
    inputs.insert(inputs.end(), operands.begin(), operands.end());
    node.program = std::make_shared<const Program>(std::move(program));
    graph_.set_inputs(node, std::move(inputs), 2);
    graph_.infer(node);
    lowered_[id] = to;
    order_.push_back({id, y, weights, origins({&graph_.node(id)})});
    if (stores)
      bf16_[y] = node.output();
    else
      graph_.replace_uses(y, node.output());
  }

  // From the last to the first, so that what still reads a value is none of the old convolutions.
  void finish() {
    for (auto old = order_.rbegin(); old != order_.rend(); ++old) {
      graph_.remove_dead();
      if (graph_.uses(old->y) > 0) {
        const NodeId cast = graph_.add_program(cast_program(DType::kBF16, DType::kF32), {bf16_.at(old->y)});
        graph_.node(cast).origin = old->names;
        graph_.replace_uses(old->y, graph_.node(cast).output());
      }
      if (graph_.node(old->id).alive) graph_.remove(graph_.node(old->id));
      const int64_t bytes = graph_.constant(old->weights) ? graph_.constant(old->weights)->bytes() / 2 : 0;
      release_unread(graph_, old->weights);
      decisions_.apply(old->names, bytes, 0);
    }
    graph_.remove_dead();
  }

  Graph& graph_;
  Decisions& decisions_;
  std::map<NodeId, NodeId> lowered_;  // old and new
  std::map<ValueId, ValueId> bf16_;
  struct Old {
    NodeId id;
    ValueId y, weights;
    std::vector<std::string> names;
  };
  std::vector<Old> order_;
};

}  // namespace

void lower_convolutions(Graph& graph, Decisions& decisions) { Lowering(graph, decisions).run(); }

}  // namespace ridgeline
