// The whole graph in f16. Every node whose float operands are f32 and whose operator takes f16 reads and writes f16
// values: weights are rounded once, here; elementwise steps and epilogues compute in f32 what they read and write so.
// It comes after the fusions, which thus find f32 as they know it and fold weights unrounded, and still is the first
// stage's: each stage has what its own fusions left, in f16. Where an f32 value enters, or a node stays f32, a step
// that has a Program reads or writes it as it is; beside another node a Cast stands.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "optimize/lower_images.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

constexpr float kLargest = 65504, kLeast = 0x1p-24F;  // of f16; the least is a denormal
constexpr int64_t kSmallConstant = 65536;             // bytes; an operand of a Program that is no larger stays f32

/// Operands that are no data: factors of extents, statistics that go into the weights in full.
bool stays_wide(const Node& node, int input) {
  return input > 0 && (node.is("Resize") || node.is("Upsample") || node.is("BatchNormalization"));
}

bool is_mask(const Node& node, int input) {
  return input == 3 && (node.is("ScaledDotProductAttention") || node.is("Attention"));
}

/// Why this operator is left as it is, whatever its types; empty: it is not.
std::string why_left(const Node& node) {
  if (node.op->family == "quantize" || node.is("LowBitMatMul") || node.op->name.starts_with("QLinear"))
    return "steps of quantized types stay f32";
  if (node.op->name.starts_with("Random") || node.is("Bernoulli") || node.is("Multinomial")) return "draws at random";
  if (node.is("Range") || node.is("CumSum")) return "counts: f16 has no odd integers past 2048";
  return "";
}

bool takes_angles(const Program& p) {
  return p.count(ScalarOp::kSin) + p.count(ScalarOp::kCos) + p.count(ScalarOp::kTan) > 0;
}

class Halves {
 public:
  Halves(Graph& graph, Decisions& decisions) : graph_(graph), decisions_(decisions) {}

  void run() {
    const std::vector<NodeId> order = graph_.order();
    // As they are now: an operator's own program follows the types of its operands, which are about to change.
    for (NodeId id : order)
      if (graph_.node(id).op->is_elementwise()) programs_.emplace(id, program_of(graph_, graph_.node(id)));
    find_angles(order);
    for (NodeId id : order) {
      Node& node = graph_.node(id);
      if (reads_shape_only(node)) continue;
      const bool done = node.op->is_elementwise() ? respell(node) : lower(node);
      if (!done) widen_inputs(graph_.node(id));
    }
    graph_.remove_dead();
  }

 private:
  bool is_f32(ValueId v) const { return v != kNoValue && graph_.value(v).dtype() == DType::kF32; }
  bool is_narrowed(ValueId v) const { return narrowed_.count(v) > 0; }

  /// Whatever a sine or cosine is computed from: positions times frequencies, which f16 would move by whole turns.
  void find_angles(const std::vector<NodeId>& order) {
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
      const Node& node = graph_.node(*at);
      const auto program = programs_.find(*at);
      bool wanted = program != programs_.end() && takes_angles(program->second);
      if (node.op->is_elementwise() || node.op->kind == OpKind::kMovement || node.is("MatMul"))
        for (ValueId v : node.outputs) wanted = wanted || angles_.count(v);
      if (!wanted) continue;
      for (ValueId v : node.inputs)
        if (is_f32(v)) angles_.insert(v);
    }
  }

  // ---- constants

  /// The constant in f16; nothing if it does not fit, with the reason. `mask`: what is less than f16's least number is
  /// that number (as -inf, a row that is masked as a whole would be NaN).
  std::optional<Tensor> rounded(const Tensor& c, bool mask, std::string& why) const {
    Tensor half(DType::kF16, c.shape());
    const float* from = c.as<float>();
    uint16_t* to = static_cast<uint16_t*>(half.data());
    for (int64_t i = 0, count = c.elements(); i < count; ++i) {
      const bool least = mask && from[i] < -kLargest && std::isfinite(from[i]);
      if (!least && !(std::fabs(from[i]) <= kLargest)) {
        why = std::isfinite(from[i]) ? fmt::format("holds {:g}, and f16 ends at 65504", from[i])
                                     : "holds infinities or NaN";
        return std::nullopt;
      }
      to[i] = f32_to_f16(least ? -kLargest : from[i]);
    }
    return half;
  }

  /// Has a finite number that f16 has not; or is one that vanishes there: the 1e-12 that keeps a division from zero.
  bool is_beyond(const Tensor& c) const {
    const float* from = c.as<float>();
    if (c.elements() == 1 && from[0] != 0 && std::fabs(from[0]) < kLeast) return true;
    return std::any_of(from, from + c.elements(), [](float x) { return std::isfinite(x) && std::fabs(x) > kLargest; });
  }

  // ---- casts

  ValueId cast(ValueId from, DType to, const Node& at) {
    auto& known = to == DType::kF16 ? halves_ : wides_;
    if (const auto found = known.find(from); found != known.end()) return found->second;
    return known[from] = add_cast(from, to, origins({&at}));
  }

  ValueId add_cast(ValueId from, DType to, std::vector<std::string> origin) {
    Attributes attributes;
    attributes.set("to", int64_t(info(to).onnx_id));
    const std::string stem = graph_.fresh_name(graph_.value(from).name + "." + std::string(name(to)));
    const NodeId id = graph_.add_node(*find_op("Cast"), {from}, std::move(attributes), 1, {stem}, stem);
    graph_.node(id).origin = std::move(origin);
    return graph_.node(id).output();
  }

  /// A node that stays f32 reads what became f16 cast back; one with a Program did so itself.
  void widen_inputs(Node& node) {
    for (int i = 0; i < int(node.inputs.size()); ++i)
      if (node.input(i) != kNoValue && is_narrowed(node.input(i)))
        graph_.set_input(node, i, cast(node.input(i), DType::kF32, node));
  }

  /// The values that this node wrote in f32 are f16 now; as a graph output it is cast back.
  void mark_narrow(NodeId id) {
    const std::vector<ValueId> outputs = graph_.node(id).outputs;
    for (ValueId v : outputs) {
      if (v == kNoValue || graph_.value(v).dtype() != DType::kF16 || !narrow_next_.count(v)) continue;
      narrowed_.insert(v);
      if (!graph_.value(v).is_output) continue;
      const std::vector<NodeId> readers = graph_.users(v);
      const ValueId wide = cast(v, DType::kF32, graph_.node(id));
      graph_.replace_uses(v, wide);
      for (NodeId reader : readers)
        for (size_t i = 0; i < graph_.node(reader).inputs.size(); ++i)
          if (graph_.node(reader).inputs[i] == wide) graph_.set_input(graph_.node(reader), int(i), v);
      graph_.set_input(*graph_.producer(wide), 0, v);
    }
    narrow_next_.clear();
  }

  // ---- steps with a Program

  bool is_read_inside(ValueId v) const { return !graph_.users(v).empty(); }

  /// Program input i reads f16 where its value is so, or is a large constant that may be.
  void narrow_operand(Program& p, int i, ValueId& v) {
    if (p.inputs[size_t(i)].dtype != DType::kF32) return;
    if (const Tensor* c = graph_.constant(v); c && c->dtype() == DType::kF32 && c->bytes() > kSmallConstant) {
      std::string why;
      if (!constants_.count(v)) {
        const std::optional<Tensor> half = rounded(*c, false, why);
        if (!half) return;
        constants_[v] = graph_.add_constant(graph_.value(v).name + ".f16", *half);
      }
      v = constants_[v];
    }
    if (graph_.value(v).dtype() == DType::kF16) read_narrow(p, i, DType::kF16);
  }

  bool has_room(const Program& p) const {
    return int(p.code.size() + p.inputs.size() + p.outputs.size()) + 2 <= Program::kMostInstructions;
  }

  /// An elementwise node as a Program that computes in f32 what it reads and writes in f16.
  bool respell(Node& node) {
    Program p = programs_.at(node.id);
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs)
      if (v != kNoValue) inputs.push_back(v);
    inputs.resize(std::min(inputs.size(), p.inputs.size()));
    const bool reads = std::any_of(inputs.begin(), inputs.end(), [&](ValueId v) { return is_narrowed(v); });
    bool writes = false, angle = false, beyond = false, masks = true;
    for (size_t o = 0; o < node.outputs.size(); ++o) {
      const ValueId v = node.outputs[o];
      if (v == kNoValue || p.output_dtype(int(o)) != DType::kF32) continue;
      writes = writes || is_read_inside(v);
      angle = angle || angles_.count(v);
      for (NodeId r : graph_.users(v))
        masks = masks && (graph_.node(r).is("Softmax") || is_mask(graph_.node(r), input_of(graph_.node(r), v)));
    }
    for (ValueId v : inputs) beyond = beyond || (is_f32(v) && graph_.constant(v) && is_beyond(*graph_.constant(v)));
    if (!reads && !writes) return true;
    if (!has_room(p)) return refuse(node, "too_long", "its Program has no room for the casts");
    if (angle) writes = false, refuse(node, "angle", "a sine or cosine is computed from it");
    if (beyond && !masks)
      writes = false, refuse(node, "range", "a constant of it is none of f16's numbers, and so may be its result");
    if (!reads && !writes) return true;
    if (!decisions_.allowed(node)) return false;
    for (size_t i = 0; i < inputs.size(); ++i) narrow_operand(p, int(i), inputs[i]);
    for (size_t o = 0; writes && o < node.outputs.size(); ++o) {
      if (node.outputs[o] == kNoValue || p.output_dtype(int(o)) != DType::kF32 || !is_read_inside(node.outputs[o]))
        continue;
      write_narrow(p, int(o), DType::kF16, beyond);
      narrow_next_.insert(node.outputs[o]);
    }
    const int64_t saved = saved_bytes(node);
    node.op = &elementwise_op();
    node.attributes = {};
    node.program = std::make_shared<const Program>(std::move(p));
    const int count = int(inputs.size());
    replace_inputs(node, std::move(inputs), count);
    return finish(node, saved);
  }

  static int input_of(const Node& node, ValueId v) {
    return int(std::find(node.inputs.begin(), node.inputs.end(), v) - node.inputs.begin());
  }

  // ---- the others

  bool refuse(const Node& node, std::string_view code, const std::string& why) {
    decisions_.refuse(node, code, why);
    return false;
  }

  bool lower(Node& node) {
    std::vector<ValueId> inputs(node.inputs.begin(), node.inputs.begin() + node.op_inputs);
    if (std::none_of(inputs.begin(), inputs.end(), [&](ValueId v) { return is_f32(v) || is_narrowed(v); }))
      return false;
    if (const std::string why = why_left(node); !why.empty()) return refuse(node, "stays_f32", why);
    for (ValueId v : node.outputs)
      if (angles_.count(v)) return refuse(node, "angle", "a sine or cosine is computed from it");
    std::map<ValueId, Tensor> constants;
    std::vector<ValueInfo> infos;  // as they would be
    bool any = false;
    for (int i = 0; i < node.op_inputs; ++i) {
      const ValueId v = node.input(i);
      infos.push_back(v == kNoValue ? ValueInfo{} : graph_.value(v).info);
      if (v == kNoValue || !is_float(infos.back().dtype) || is_narrowed(v)) {
        any = any || (v != kNoValue && is_narrowed(v));
        continue;
      }
      if (infos.back().dtype != DType::kF32)
        return refuse(node, "types", fmt::format("input {} is {}, not f32", i, name(infos.back().dtype)));
      if (stays_wide(node, i)) continue;
      any = true;
      infos.back().dtype = DType::kF16;
      if (!graph_.constant(v)) continue;
      if (!constants_.count(v) && !constants.count(v)) {
        std::string why;
        std::optional<Tensor> half = rounded(*graph_.constant(v), is_mask(node, i), why);
        if (!half) return refuse(node, "range", fmt::format("the constant '{}' {}", graph_.value(v).name, why));
        constants.emplace(v, *half);
      }
      infos.back().constant = constants_.count(v) ? *graph_.constant(constants_[v]) : constants.at(v);
    }
    if (!any) return false;
    std::vector<DType> results;
    if (const std::string why = why_not(node, infos, results); !why.empty()) return refuse(node, "operator", why);
    std::shared_ptr<const Program> program;
    if (const std::string why = epilogue(node, results[0], inputs, program); !why.empty())
      return refuse(node, "epilogue", why);
    if (!decisions_.allowed(node)) return false;
    const int64_t saved = saved_bytes(node);
    for (auto& [v, half] : constants) constants_[v] = graph_.add_constant(graph_.value(v).name + ".f16", half);
    for (int i = 0; i < node.op_inputs; ++i) {
      const ValueId v = node.input(i);
      if (!is_f32(v) || stays_wide(node, i)) continue;
      inputs[size_t(i)] = graph_.constant(v) ? constants_.at(v) : cast(v, DType::kF16, node);
    }
    for (size_t o = 0; o < node.outputs.size(); ++o)
      if (node.outputs[o] != kNoValue && is_f32(node.outputs[o])) narrow_next_.insert(node.outputs[o]);
    node.program = program;
    replace_inputs(node, std::move(inputs), node.op_inputs);
    return finish(node, saved);
  }

  /// Does the operator take these types, with results that are f16 where they were f32, or the same?
  std::string why_not(const Node& node, const std::vector<ValueInfo>& infos, std::vector<DType>& types) const {
    std::vector<const ValueInfo*> pointers;
    for (size_t i = 0; i < infos.size(); ++i) pointers.push_back(node.inputs[i] == kNoValue ? nullptr : &infos[i]);
    try {
      const std::vector<ValueInfo> results =
          infer_node(*node.op, node.attributes, node.name, pointers, int(node.outputs.size()));
      for (size_t o = 0; o < results.size(); ++o) {
        types.push_back(results[o].dtype);
        if (node.outputs[o] == kNoValue || (o == 0 && node.program)) continue;
        const DType was = graph_.value(node.outputs[o]).dtype(), now = results[o].dtype;
        if (now != was && !(was == DType::kF32 && now == DType::kF16))
          return fmt::format("result {} would be {}, and was {}", o, name(now), name(was));
      }
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  /// The node's Program on the unrounded f32 accumulator, with operands and result as they are stored now; none where
  /// there was none, but for a contraction's result that only the graph's output wants, in f32.
  std::string epilogue(const Node& node, DType own, std::vector<ValueId>& inputs,
                       std::shared_ptr<const Program>& program) {
    const ValueId v = node.output();
    const bool wide = v != kNoValue && is_f32(v) && graph_.value(v).is_output && !is_read_inside(v) &&
                      node.op->kind == OpKind::kContraction && node.outputs.size() == 1;
    Program p;
    if (!node.program) {
      if (!wide || own != DType::kF16) return "";
      p.inputs = {{"v", DType::kF32}};
      p.outputs = {0};
    } else {
      p = *node.program;
      if (p.outputs.size() != 1 || !has_room(p)) return "its Program has no room for the casts";
      for (size_t i = size_t(node.op_inputs); i < node.inputs.size(); ++i) {
        ValueId operand = node.inputs[i];
        narrow_operand(p, int(i) - node.op_inputs + 1, operand);
        inputs.push_back(operand);
      }
      if (p.output_dtype() == DType::kF32 && !wide) write_narrow(p, 0, DType::kF16, false);
    }
    program = std::make_shared<const Program>(std::move(p));
    return "";
  }

  // ---- bookkeeping

  int64_t saved_bytes(const Node& node) const {
    int64_t bytes = 0;
    for (ValueId v : node.inputs)
      if (is_f32(v) && graph_.constant(v)) bytes += graph_.constant(v)->bytes();
    for (ValueId v : node.outputs)
      if (is_f32(v)) bytes += value_bytes(graph_, v);
    return bytes / 2;
  }

  void replace_inputs(Node& node, std::vector<ValueId> inputs, int op_inputs) {
    const std::vector<ValueId> before = node.inputs;
    graph_.set_inputs(node, std::move(inputs), op_inputs);
    for (ValueId v : before)
      if (v != kNoValue && graph_.constant(v)) release_unread(graph_, v);
  }

  bool finish(Node& node, int64_t saved) {
    const NodeId id = node.id;
    graph_.infer(node);
    mark_narrow(id);
    decisions_.apply(origins({&graph_.node(id)}), saved, 0);
    return true;
  }

  Graph& graph_;
  Decisions& decisions_;
  std::map<NodeId, Program> programs_;         // of elementwise steps, in f32
  std::set<ValueId> angles_;                   // f32 values that sines and cosines are computed from
  std::set<ValueId> narrowed_, narrow_next_;   // values that were f32
  std::map<ValueId, ValueId> constants_;       // f32 to f16
  std::map<ValueId, ValueId> halves_, wides_;  // values to casts of them
};

}  // namespace

void lower_to_f16(Graph& graph, Decisions& decisions) { Halves(graph, decisions).run(); }

}  // namespace ridgeline
