// lower_to_bf16 on convolutions: weights and images in bf16, sums and epilogue in f32. An image between two steps that
// both can take it so is bf16 in memory; elementwise steps read and write it as they compute, pools and moves stay.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/narrow.h"
#include "kernels/kernel.h"
#include "optimize/lower_images.h"
#include "optimize/passes.h"

namespace ridgeline {
namespace {

Tensor in_bf16(const Tensor& w) {
  Tensor q(DType::kBF16, w.shape());
  narrow_to_bf16(w.as<float>(), w.elements(), static_cast<uint16_t*>(q.data()));
  return q;
}

// ---- programs

bool all_f32(const Program& p) {
  const auto is_f32 = [](DType t) { return t == DType::kF32 || t == DType::kBool; };
  return p.outputs.size() == 1 && p.output_dtype() == DType::kF32 &&
         int(p.code.size()) + 8 < Program::kMostInstructions &&
         std::all_of(p.inputs.begin(), p.inputs.end(), [&](const ProgramInput& i) { return is_f32(i.dtype); });
}

// ---- which values

/// Works on bf16 as on f32 where its images are: data operands and result are stored alike.
bool stores_alike(const Node& node) {
  if (node.program || node.outputs.size() != 1) return false;
  for (const std::string_view op :
       {"MaxPool", "AveragePool", "GlobalAveragePool", "Concat", "Slice", "Transpose", "Identity"})
    if (node.is(op)) return true;
  return node.is("Resize") && schema_string(*node.op, node.attributes, "mode") == "nearest";
}

class Images {
 public:
  Images(Graph& graph, Decisions& decisions) : graph_(graph), decisions_(decisions) {}

  void run() {
    int pending = 0;
    for (NodeId id : graph_.order()) {
      const Node& node = graph_.node(id);
      if (!node.is("Conv") || !eligible(node)) continue;
      if (decisions_.most_applied >= 0 && decisions_.applied + pending >= decisions_.most_applied) break;
      if (!decisions_.allowed(node)) continue;
      lowered_.insert(id);
      ++pending;
    }
    if (lowered_.empty()) return;
    choose_values();
    // As they are now: an operator's own program follows the types of its operands, which are about to change.
    for (NodeId id : graph_.order())
      if (takes(graph_.node(id))) programs_.emplace(id, program_of(graph_, graph_.node(id)));
    for (NodeId id : graph_.order()) {
      Node& node = graph_.node(id);
      if (lowered_.count(id))
        lower(node);
      else if (node.op->is_elementwise())
        respell(node);
      else if (stores_alike(node) && narrow_.count(node.output()))
        graph_.infer(node);
    }
    graph_.remove_dead();
  }

 private:
  // What the convolution becomes, asked of the kernels on a graph of its own.
  bool eligible(const Node& node) {
    const Tensor* w = graph_.constant(node.input(1));
    const ValueId x = node.input(0), b = node.input(2);
    if (!w || w->dtype() != DType::kF32 || graph_.value(x).dtype() != DType::kF32 || graph_.constant(x) ||
        !graph_.value(x).info.shape || graph_.value(node.output()).dtype() != DType::kF32)
      return false;
    const auto refuse = [&](std::string_view code, const std::string& why) {
      decisions_.refuse(node, code, why);
      return false;
    };
    if (b != kNoValue && !graph_.constant(b)) return refuse("bias", "its bias is no constant");
    if (node.program && !all_f32(*node.program)) return refuse("epilogue", "its epilogue does not work in f32 alone");
    const float* from = w->as<float>();
    if (!std::all_of(from, from + w->elements(), [](float v) { return std::isfinite(v); }))
      return refuse("not_finite", "its weights hold infinities or NaN");
    Graph probe;
    probe.target = graph_.target;
    std::vector<ValueId> inputs = {probe.add_input("x", DType::kBF16, graph_.value(x).shape()),
                                   probe.add_constant("w", Tensor(DType::kBF16, w->shape()))};
    const NodeId conv = probe.add_node(*node.op, inputs, node.attributes);
    Program p = start(node);
    for (size_t i = size_t(node.op_inputs); i < node.inputs.size(); ++i) {
      const Value& v = graph_.value(node.inputs[i]);
      const bool image = !v.is_constant() && v.rank() == 4;
      if (image) read_narrow(p, int(i) - node.op_inputs + 1, DType::kBF16);
      inputs.push_back(v.is_constant() ? probe.add_constant({}, v.info.constant)
                                       : probe.add_input({}, image ? DType::kBF16 : v.dtype(), v.shape()));
    }
    if (b != kNoValue) inputs.push_back(add_bias(probe, node, p));
    write_narrow(p, 0, DType::kBF16, false);
    probe.node(conv).program = std::make_shared<const Program>(p);
    probe.value(probe.node(conv).output()).info.dtype = DType::kBF16;
    const std::string why = why_no_kernel(probe, probe.node(conv), probe.node(conv).program, inputs, 2);
    if (!why.empty()) return refuse("no_kernel", "only the reference would run it in bf16: " + why);
    return true;
  }

  // Its program, or the identity; the accumulator is in f32, whatever is stored.
  Program start(const Node& node) const {
    if (node.program) return *node.program;
    Program p;
    p.inputs = {{"v", DType::kF32}};
    p.outputs = {0};
    return p;
  }

  // The operator's bias in f32 becomes the program's first step (in bf16 it would lose its digits); its operand, in
  // `to`, comes last.
  ValueId add_bias(Graph& to, const Node& node, Program& p) const {
    const Tensor& b = *graph_.constant(node.input(2));
    Extents shape = {b.elements()};
    for (int a = 2; a < graph_.value(node.output()).rank(); ++a) shape.push_back(1);
    const int operand = p.add_input("bias", DType::kF32);
    put_first(p, {ScalarOp::kAdd, DType::kF32, 0, int16_t(operand)}, 0);
    return to.add_constant({}, b.reshaped(shape));
  }

  // All images at first; then those that one of their steps cannot take are left in f32, until nothing changes.
  void choose_values() {
    for (ValueId v = 0; v < graph_.value_count(); ++v) {
      const Value& value = graph_.value(v);
      const Node* from = graph_.producer(v);
      if (!from || !from->alive || value.is_output || value.dtype() != DType::kF32 || !value.info.shape ||
          value.rank() != 4)
        continue;
      if (lowered_.count(from->id) || takes(*from) || stores_alike(*from)) narrow_.insert(v);
    }
    for (bool changed = true; changed;) {
      changed = false;
      for (auto at = narrow_.begin(); at != narrow_.end();) {
        const bool keep = may_stay(*at);
        at = keep ? std::next(at) : narrow_.erase(at);
        changed = changed || !keep;
      }
    }
  }

  bool takes(const Node& node) const {
    return node.op->is_elementwise() && node.outputs.size() == 1 && all_f32(program_of(graph_, node));
  }
  static int data_inputs(const Node& node) { return node.is("Concat") ? int(node.inputs.size()) : 1; }

  bool may_stay(ValueId v) const {
    const Node& from = *graph_.producer(v);
    if (stores_alike(from))
      for (int i = 0; i < data_inputs(from); ++i)
        if (!narrow_.count(from.input(i))) return false;
    return std::all_of(graph_.users(v).begin(), graph_.users(v).end(), [&](NodeId u) {
      const Node& user = graph_.node(u);
      if (lowered_.count(u)) return user.input(1) != v;
      if (user.op->is_elementwise()) return takes(user);
      if (stores_alike(user)) return narrow_.count(user.output()) > 0;
      return reads_shape_only(user);
    });
  }

  ValueId as_bf16(ValueId v, const Node& reader) {
    if (narrow_.count(v)) return v;
    if (const auto at = casts_.find(v); at != casts_.end()) return at->second;
    Program p;
    p.inputs = {{"x", DType::kF32}};
    p.outputs = {0};
    write_narrow(p, 0, DType::kBF16, false);
    const NodeId cast = graph_.add_program(p, {v});
    graph_.node(cast).origin = origins({&reader});
    return casts_[v] = graph_.node(cast).output();
  }

  void lower(Node& node) {
    const ValueId weights = node.input(1);
    const int64_t before = graph_.constant(weights)->bytes() + value_bytes(graph_, node.output());
    if (!weights_.count(weights))
      weights_[weights] = graph_.add_constant(graph_.value(weights).name + ".bf16", in_bf16(*graph_.constant(weights)));
    std::vector<ValueId> inputs = {as_bf16(node.input(0), node), weights_[weights]};
    Program p = start(node);
    for (size_t i = size_t(node.op_inputs); i < node.inputs.size(); ++i) {
      inputs.push_back(node.inputs[i]);
      if (narrow_.count(node.inputs[i])) read_narrow(p, int(i) - node.op_inputs + 1, DType::kBF16);
    }
    if (node.input(2) != kNoValue && node.op_inputs > 2) inputs.push_back(add_bias(graph_, node, p));
    const bool narrow = narrow_.count(node.output()) > 0;
    if (narrow) write_narrow(p, 0, DType::kBF16, false);
    node.program = std::make_shared<const Program>(p);
    graph_.set_inputs(node, inputs, 2);
    graph_.infer(node);
    release_unread(graph_, weights);
    decisions_.asked = node.name;
    decisions_.apply(origins({&node}), before / 2, 0);
  }

  void respell(Node& node) {
    const bool narrow = narrow_.count(node.output()) > 0;
    const bool reads = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId v) { return narrow_.count(v); });
    if (!narrow && !reads) return;
    Program p = programs_.at(node.id);
    std::vector<ValueId> inputs;
    for (ValueId v : node.inputs)
      if (v != kNoValue) inputs.push_back(v);
    inputs.resize(std::min(inputs.size(), p.inputs.size()));
    for (size_t i = 0; i < inputs.size(); ++i)
      if (narrow_.count(inputs[i])) read_narrow(p, int(i), DType::kBF16);
    if (narrow) write_narrow(p, 0, DType::kBF16, false);
    node.op = &elementwise_op();
    node.attributes = {};
    node.program = std::make_shared<const Program>(p);
    const int count = int(inputs.size());
    graph_.set_inputs(node, std::move(inputs), count);
    graph_.infer(node);
  }

  Graph& graph_;
  Decisions& decisions_;
  std::set<NodeId> lowered_;
  std::map<NodeId, Program> programs_;  // of elementwise steps, in f32
  std::set<ValueId> narrow_;            // stored in bf16
  std::map<ValueId, ValueId> casts_;    // of values in f32
  std::map<ValueId, ValueId> weights_;  // in bf16, of those in f32
};

}  // namespace

int put_first(Program& p, Instruction in, int of) {
  const int at = p.first_result();
  const auto moved = [&](int o) { return o >= at ? o + 1 : o == of ? at : o; };
  for (Instruction& code : p.code)
    for (int16_t* o : {&code.a, &code.b, &code.c})
      if (*o >= 0) *o = int16_t(moved(*o));
  for (int& o : p.outputs) o = moved(o);
  p.code.insert(p.code.begin(), in);
  return at;
}

void read_narrow(Program& p, int input, DType dtype) {
  p.inputs[size_t(input)].dtype = dtype;
  put_first(p, {ScalarOp::kCast, DType::kF32, int16_t(input)}, input);
}

void write_narrow(Program& p, int output, DType dtype, bool saturate) {
  int& of = p.outputs[size_t(output)];
  if (saturate) {
    // Constants stand before the results, which move up.
    const auto add = [&](double x) {
      const int at = p.first_result();
      for (Instruction& code : p.code)
        for (int16_t* o : {&code.a, &code.b, &code.c})
          if (*o >= at) ++*o;
      for (int& o : p.outputs)
        if (o >= at) ++o;
      p.constants.push_back({DType::kF32, x, 0});
      return int16_t(at);
    };
    const double largest = dtype == DType::kF16 ? 65504 : 3.3895313892515355e38;
    const int16_t low = add(-largest), high = add(largest);
    p.code.push_back({ScalarOp::kClamp, DType::kF32, int16_t(of), low, high});
    of = p.operands() - 1;
  }
  p.code.push_back({ScalarOp::kCast, dtype, int16_t(of)});
  of = p.operands() - 1;
}

void lower_images_to_bf16(Graph& graph, Decisions& decisions) { Images(graph, decisions).run(); }

}  // namespace ridgeline
