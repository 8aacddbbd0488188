#include "plan/lower.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <climits>
#include <set>

#include "ir/value_extents.h"
#include "machine/roofline.h"
#include "plan/memory.h"
#include "tune/cuda_ceilings.h"

namespace ridgeline {
namespace {

// A constant's content stays in the step's problem only if it is of this size: axes, pads, scales that `run` may read.
constexpr int64_t kSmallConstantBytes = 4096;

int64_t memory_of_machine() {
  static const int64_t bytes = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  return bytes;
}

// Operators whose FLOPs the floor counts as special functions beside their program's.
std::array<int64_t, kSpecialFunctions> special_work(const Problem& problem, const Cost& cost) {
  std::array<int64_t, kSpecialFunctions> special{};
  int64_t counted = 0;
  const int64_t outputs = problem.outputs.empty() ? 0 : problem.output().elements();
  auto add = [&](SpecialFunction f, int64_t n) {
    special[size_t(f)] += n;
    counted += n;
  };
  if (problem.program) {
    for (const Instruction& in : problem.program->code) {
      if (!info(in.op).special || !is_float(in.dtype)) continue;
      switch (in.op) {
        case ScalarOp::kErf:
        case ScalarOp::kErfc:
          add(SpecialFunction::kErf, outputs);
          break;
        case ScalarOp::kTanh:
          add(SpecialFunction::kTanh, outputs);
          break;
        case ScalarOp::kDiv:
        case ScalarOp::kReciprocal:
          add(SpecialFunction::kDivide, outputs);
          break;
        case ScalarOp::kSqrt:
        case ScalarOp::kRsqrt:
          add(SpecialFunction::kSqrt, outputs);
          break;
        default:
          add(SpecialFunction::kExp, outputs);
          break;
      }
    }
  }
  if (cost.special > counted) special[size_t(SpecialFunction::kExp)] += cost.special - counted;
  return special;
}

}  // namespace

Floor step_floor(const Problem& problem, const Cost& cost, const Ceilings& ceilings, int threads) {
  Work work;
  work.flops = (cost.executed_flops >= 0 ? cost.executed_flops : cost.flops) - cost.special;
  if (work.flops < 0) work.flops = 0;
  work.read_bytes = cost.read_bytes;
  work.write_bytes = cost.write_bytes;
  work.dtype = arithmetic_of(problem);
  work.special = special_work(problem, cost);
  return floor_of(work, ceilings, threads);
}

Lowering::Lowering(Graph& graph, const PlanOptions& options, const Ceilings& ceilings, ConstantStore& store,
                   bool consume)
    : graph_(graph),
      options_(options),
      ceilings_(ceilings),
      choosing_(options.deterministic && options.device == DeviceKind::kCpu ? unmeasured_ceilings(kDeterministicLanes)
                                                                            : ceilings),
      store_(store),
      consume_(consume) {
  threads_ = ThreadPool(options.threads).threads();
  lanes_ = options.deterministic ? kDeterministicLanes : threads_;
  plan_.threads = threads_;
  plan_.device = options.device;
  plan_.lanes = lanes_;
  bindings_ = options.bindings;
  for (const std::string& symbol : graph.symbols()) bindings_.emplace(symbol, 1);
}

// Which nodes run: walking back from the outputs, stopping at constants and at values whose content is known.
void Lowering::find_needed() {
  const int values = graph_.value_count();
  shapes_.resize(size_t(values));
  known_.resize(size_t(values));
  refs_.resize(size_t(values));
  last_reader_.assign(size_t(values), -1);
  constant_readers_.assign(size_t(values), 0);
  concat_buffer_.assign(size_t(graph_.node_capacity()), -1);
  order_ = graph_.order();
  needed_node_.assign(size_t(graph_.node_capacity()), 0);
  std::vector<char> needed(static_cast<size_t>(values), 0);
  for (ValueId v : graph_.outputs) needed[size_t(v)] = 1;
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    const Node& node = graph_.node(*it);
    bool runs = false;
    for (ValueId v : node.outputs) runs = runs || (v != kNoValue && needed[size_t(v)] && !known_constant(v));
    if (!runs) continue;
    needed_node_[size_t(node.id)] = 1;
    for (ValueId v : node.inputs)
      if (v != kNoValue) needed[size_t(v)] = 1;
  }
  std::erase_if(order_, [&](NodeId id) { return !needed_node_[size_t(id)]; });
  for (int v = 0; v < values; ++v) {
    const Value& value = graph_.value(v);
    if (!needed[size_t(v)] && value.producer == kNoNode && !value.is_input) continue;
    if (!value.info.shape) {
      if (!needed[size_t(v)]) continue;
      fail(ErrorCode::kUnsupported, "unsupported: the shape of '{}' is not known before the run (node '{}')",
           value.name, value.producer == kNoNode ? std::string("input") : graph_.node(value.producer).name);
    }
    shapes_[size_t(v)] = extents_of(value, bindings_);
    // Before kernels prepare tables as long as an axis: no run could hold it.
    if (const int64_t bytes = bytes_of(value.dtype(), element_count(shapes_[size_t(v)])); bytes > memory_of_machine()) {
      const Node* from = value.producer == kNoNode ? nullptr : &graph_.node(value.producer);
      fail(ErrorCode::kResource, "{}out of memory: '{}' is {}{}, {} MB; this machine has {} MB",
           from ? fmt::format("node '{}' ({}): ", from->name, from->op->name) : "", value.name, name(value.dtype()),
           text(shapes_[size_t(v)]), bytes >> 20, memory_of_machine() >> 20);
    }
  }
}

Tensor Lowering::known_constant(ValueId v) {
  const Value& value = graph_.value(v);
  if (value.is_constant()) return value.info.constant;
  if (known_[size_t(v)]) return known_[size_t(v)];
  if (!value.info.values || !value.info.shape) return {};
  std::vector<int64_t> content;
  for (const Dim& d : *value.info.values) content.push_back(d.evaluate(bindings_));
  Tensor t(value.dtype(), evaluate(value.shape(), bindings_));
  if (t.elements() != int64_t(content.size())) return {};
  for (size_t i = 0; i < content.size(); ++i) store_i64(t.dtype(), t.data(), int64_t(i), content[i]);
  return known_[size_t(v)] = t;
}

// The last node that may read a value's buffer, through views too.
void Lowering::find_last_readers() {
  std::vector<int> position(static_cast<size_t>(graph_.node_capacity()), -1);
  for (size_t i = 0; i < order_.size(); ++i) position[size_t(order_[i])] = int(i);
  for (ValueId v : graph_.outputs) last_reader_[size_t(v)] = INT_MAX;
  for (size_t i = order_.size(); i-- > 0;) {
    const Node& node = graph_.node(order_[i]);
    int through = int(i);
    if (may_be_view(*node.op) || node.is("Concat")) {
      for (ValueId o : node.outputs)
        if (o != kNoValue) through = std::max(through, last_reader_[size_t(o)]);
    }
    for (ValueId v : node.inputs) {
      if (v == kNoValue) continue;
      last_reader_[size_t(v)] = std::max(last_reader_[size_t(v)], through);
      ++constant_readers_[size_t(v)];
    }
  }
}

Operand Lowering::operand_of(ValueId v) {
  Operand operand;
  if (v == kNoValue) return operand;
  operand.dtype = graph_.value(v).dtype();
  const Ref& ref = refs_[size_t(v)];
  operand.layout = ref.ready ? ref.layout : Layout(shapes_[size_t(v)]);
  if (Tensor constant = known_constant(v); constant) {
    operand.is_constant = true;
    operand.constant = constant;
  } else if (graph_.value(v).constant_id != 0) {
    operand.is_constant = true;  // released: it stands packed in the store
  }
  return operand;
}

Problem Lowering::problem_of(const Node& node) {
  Problem p;
  p.op = node.op;
  p.attributes = node.attributes;
  p.threads = lanes_;
  p.device = options_.device;
  p.op_inputs = node.op_inputs;
  for (ValueId v : node.inputs) p.inputs.push_back(operand_of(v));
  for (ValueId v : node.outputs) {
    Operand operand;
    if (v != kNoValue) {
      operand.dtype = graph_.value(v).dtype();
      operand.layout = Layout(shapes_[size_t(v)]);
    }
    p.outputs.push_back(operand);
  }
  p.program = node.program;
  if (node.op->is_elementwise()) {
    if (!p.program) p.program = std::make_shared<const Program>(program_of(graph_, node));
    // Omitted operands have no number in the program; neither have operands that only give a type (CastLike).
    std::erase_if(p.inputs, [](const Operand& o) { return !o.present(); });
    p.inputs.resize(std::min(p.inputs.size(), p.program->inputs.size()));
    p.op_inputs = int(p.inputs.size());
  }
  return p;
}

Plan Lowering::build() {
  find_needed();
  find_last_readers();
  plan_.packing_peak_bytes = weight_bytes_ = weights_in_graph();
  for (size_t i = 0; i < graph_.inputs.size(); ++i) {
    const ValueId v = graph_.inputs[i];
    const Value& value = graph_.value(v);
    if (!value.info.shape)
      fail(ErrorCode::kBadInput, "the rank of the input '{}' is not known: give it with --input", value.name);
    shapes_[size_t(v)] = extents_of(value, bindings_);
    plan_.inputs.push_back({value.name, value.dtype(), shapes_[size_t(v)]});
    buffers_.push_back({Place::Kind::kInput, int(i), bytes_of(value.dtype(), element_count(shapes_[size_t(v)]))});
    buffers_.back().last_reader = INT_MAX;  // the caller's: never written
    refs_[size_t(v)] = {int(buffers_.size()) - 1, 0, Layout(shapes_[size_t(v)]), true};
  }
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    const ValueId v = graph_.outputs[i];
    plan_.outputs.push_back({graph_.value(v).name, graph_.value(v).dtype(), shapes_[size_t(v)]});
  }
  choose_layouts();
  for (size_t i = 0; i < order_.size(); ++i) lower(graph_.node(order_[i]), int(i));
  finish_outputs();
  finish_slots();
  return std::move(plan_);
}

// With symbols bound, inference must still say what it said symbolically: a Reshape whose extents do not fit, or
// operands that broadcast only for some extents, are found here and not in a kernel.
void Lowering::check_bound(const Node& node) const {
  if (node.op == &elementwise_op() || bindings_.empty()) return;
  std::vector<ValueInfo> infos(size_t(node.op_inputs));
  std::vector<const ValueInfo*> pointers(size_t(node.op_inputs), nullptr);
  for (int i = 0; i < node.op_inputs; ++i) {
    const ValueId v = node.input(i);
    if (v == kNoValue) continue;
    const Value& value = graph_.value(v);
    infos[size_t(i)] = {value.dtype(), to_shape(shapes_[size_t(v)]), std::nullopt,
                        known_[size_t(v)] ? known_[size_t(v)] : value.info.constant};
    pointers[size_t(i)] = &infos[size_t(i)];
  }
  std::vector<ValueInfo> results;
  try {
    results = infer_node(*node.op, node.attributes, node.name, pointers, int(node.outputs.size()));
  } catch (const NeedsValues&) {
    return;  // content that only the optimizer knew
  }
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    if (node.outputs[o] == kNoValue || !results[o].shape ||
        extents(*results[o].shape) == shapes_[size_t(node.outputs[o])])
      continue;
    fail(ErrorCode::kBadInput,
         "node '{}' ({}): with these dimensions its output would be {}, but {} was inferred; the inputs' shapes do not "
         "fit each other",
         node.name, node.op->name, text(*results[o].shape), text(shapes_[size_t(node.outputs[o])]));
  }
}

void Lowering::lower(const Node& node, int position) {
  check_bound(node);
  Problem problem = problem_of(node);
  if (!lower_as_view(node, problem) && !lower_concat_in_place(node, problem))
    lower_as_step(node, std::move(problem), position);
  for (ValueId v : node.inputs) {
    if (v != kNoValue && --constant_readers_[size_t(v)] == 0 && consume_) release_constant(v);
  }
}

bool Lowering::lower_as_view(const Node& node, const Problem& problem) {
  if (!may_be_view(*node.op) || (!options_.views && !is_reshape(*node.op))) return false;
  const ValueId source = node.input(0);
  if (known_constant(source) || graph_.value(source).constant_id) return false;
  std::vector<Ref> views;
  for (size_t o = 0; o < node.outputs.size(); ++o) {
    if (node.outputs[o] == kNoValue) {
      views.push_back({});
      continue;
    }
    const std::optional<View> view = view_of(problem, int(o));
    if (!view) return false;
    Ref ref = refs_[size_t(source)];
    ref.layout = view->layout;
    ref.offset_bytes += bytes_of(graph_.value(source).dtype(), view->offset);
    views.push_back(ref);
  }
  if (info(graph_.value(source).dtype()).bits < 8) return false;
  for (size_t o = 0; o < views.size(); ++o)
    if (node.outputs[o] != kNoValue) refs_[size_t(node.outputs[o])] = views[o];
  return true;
}

// Inputs whose producers wrote into the result's buffer are there already; the others are copied in.
bool Lowering::lower_concat_in_place(const Node& node, const Problem& problem) {
  const int buffer = concat_buffer_[size_t(node.id)];
  if (buffer < 0) return false;
  const Value& out = graph_.value(node.output());
  Ref whole{buffer, 0,
            stored_last_[size_t(node.output())] ? Layout::channels_last(problem.output().shape())
                                                : Layout(problem.output().shape()),
            true};
  const int64_t given = problem.integer("axis");
  const size_t axis = size_t(given < 0 ? given + whole.layout.rank() : given);
  int64_t offset = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId v = node.inputs[i];
    Ref slice{buffer, offset, Layout(problem.input(int(i)).shape(), whole.layout.strides), true};
    offset += bytes_of(out.dtype(), problem.input(int(i)).shape()[axis] * whole.layout.strides[axis]);
    const Ref& now = refs_[size_t(v)];
    if (now.ready && now.buffer == buffer && now.offset_bytes == slice.offset_bytes) continue;
    if (slice.layout.elements() == 0) continue;
    assert(now.ready);
    emit_copy(node.name, node.origin, now, out.dtype(), slice.layout, slice);
  }
  refs_[size_t(node.output())] = whole;
  return true;
}

int Lowering::new_buffer(int64_t bytes, int last_reader) {
  Buffer buffer;
  buffer.bytes = bytes;
  buffer.last_reader = last_reader;
  buffers_.push_back(buffer);
  return int(buffers_.size()) - 1;
}

int64_t Lowering::weights_in_graph() const {
  int64_t total = 0;
  std::set<const void*> counted;  // values may share a tensor
  for (ValueId v = 0; v < graph_.value_count(); ++v) {
    const Value& value = graph_.value(v);
    if (value.is_constant() && counted.insert(value.info.constant.data()).second) total += value.info.constant.bytes();
  }
  return total;
}

void Lowering::release_constant(ValueId v) {
  Value& value = graph_.value(v);
  if (!value.is_constant() || value.is_output || value.info.constant.bytes() <= kSmallConstantBytes) return;
  const bool stays = value.constant_id != 0 && store_.find({value.constant_id, ""});  // a kernel reads it as it is
  if (!stays) weight_bytes_ -= value.info.constant.bytes();
  if (!options_.dry) value.info.constant = {};
}

int Lowering::constant_place(ValueId v, const KernelCall& call, int input) {
  const Packing packing = call.kernel->packing ? call.kernel->packing(call.problem, call.tile, input) : Packing{};
  const Value& value = graph_.value(v);
  const Tensor source = known_constant(v);
  Tensor stored;
  if (value.constant_id == 0) {  // known content: small, this plan's own
    stored = source;
  } else {
    const ConstantStore::Key key{value.constant_id, packing.key};
    stored = store_.find(key);
    if (stored && !packing.key.empty() && stored.bytes() < packing.bytes)  // of a saved plan: files are not trusted
      fail(ErrorCode::kBadModel, "the packed weights of '{}' have {} bytes, '{}' reads {}", value.name, stored.bytes(),
           call.kernel->name, packing.bytes);
    if (!stored) {
      if (!source)
        fail(ErrorCode::kUnsupported,
             "unsupported: the weights of '{}' were released and stand packed otherwise than '{}' asks", value.name,
             call.kernel->name);
      if (packing.key.empty()) {
        stored = source;
      } else {
        stored = Tensor(DType::kU8, {packing.bytes});
        weight_bytes_ += packing.bytes;
        plan_.packing_peak_bytes = std::max(plan_.packing_peak_bytes, weight_bytes_);
        // Pages that nobody touches take no memory.
        if (!options_.dry) call.kernel->pack(call.problem, call.tile, input, source, stored.data());
      }
      store_.put(key, stored);
    }
  }
  for (size_t i = 0; i < plan_.constants.size(); ++i)
    if (plan_.constants[i].data() == stored.data()) return int(i);
  plan_.constants.push_back(stored);
  return int(plan_.constants.size()) - 1;
}

void Lowering::emit(Step step, const std::vector<Ref>& inputs, const std::vector<ValueId>& input_values,
                    const std::vector<Ref>& outputs) {
  const int at = int(plan_.steps.size());
  auto touch = [&](const Ref& ref) {
    Buffer& buffer = buffers_[size_t(ref.buffer)];
    if (buffer.first_step < 0) buffer.first_step = at;
    buffer.last_step = at;
    return Place{buffer.kind, buffer.kind == Place::Kind::kArena ? ref.buffer : buffer.index, ref.offset_bytes};
  };
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i < input_values.size() && input_values[i] == kNoValue && !inputs[i].ready)
      step.inputs.push_back({});
    else if (inputs[i].ready)
      step.inputs.push_back(touch(inputs[i]));
    else
      step.inputs.push_back({Place::Kind::kConstant, constant_place(input_values[i], step.call, int(i)), 0});
  }
  for (const Ref& output : outputs) step.outputs.push_back(output.ready ? touch(output) : Place{});
  if (step.call.workspace_bytes > 0) {
    Buffer workspace;
    workspace.bytes = step.call.workspace_bytes;
    workspace.first_step = workspace.last_step = at;
    buffers_.push_back(workspace);
    step.workspace_slot = int(buffers_.size()) - 1;
  }
  for (Operand& operand : step.call.problem.inputs)
    if (operand.constant && operand.constant.bytes() > kSmallConstantBytes) operand.constant = {};
  step.cost = cost_with(step.call.problem, step.choice);
  const Floor floor = step_floor(step.call.problem, step.cost, ceilings_, threads_);
  step.floor_ns = floor.time_ns;
  step.bound = std::string(name(floor.bound));
  plan_.steps.push_back(std::move(step));
}

void Lowering::finish_outputs() {
  for (size_t i = 0; i < graph_.outputs.size(); ++i) {
    const ValueId v = graph_.outputs[i];
    const Tensor constant = known_constant(v);
    if (constant) {
      plan_.constants.push_back(constant);
      plan_.pass_through.push_back({int(i), {Place::Kind::kConstant, int(plan_.constants.size()) - 1, 0}});
      continue;
    }
    const Ref& ref = refs_[size_t(v)];
    assert(ref.ready);
    const Buffer& buffer = buffers_[size_t(ref.buffer)];
    if (buffer.kind == Place::Kind::kOutput && buffer.index == int(i)) continue;
    if (ref.layout.is_row_major() && buffer.kind != Place::Kind::kArena) {
      plan_.pass_through.push_back({int(i), {buffer.kind, buffer.index, ref.offset_bytes}});
      continue;
    }
    Buffer target;
    target.kind = Place::Kind::kOutput;
    target.index = int(i);
    target.bytes = bytes_of(graph_.value(v).dtype(), element_count(shapes_[size_t(v)]));
    buffers_.push_back(target);
    const Ref to{int(buffers_.size()) - 1, 0, Layout(shapes_[size_t(v)]), true};
    if (to.layout.elements() == 0) continue;
    emit_copy(graph_.value(v).name, {}, ref, graph_.value(v).dtype(), to.layout, to);
  }
}

// Buffers of the arena become slots; the places in the steps are renumbered.
void Lowering::finish_slots() {
  for (Buffer& buffer : buffers_) {
    if (buffer.kind != Place::Kind::kArena || buffer.first_step < 0) continue;
    buffer.slot = int(plan_.slots.size());
    plan_.slots.push_back({0, buffer.bytes, buffer.first_step, buffer.last_step});
    // Before the whole-graph stage every value has memory of its own: sharing it by lifetime is that stage's gain.
    if (!options_.views) plan_.slots.back() = {0, buffer.bytes, 0, std::max(0, int(plan_.steps.size()) - 1)};
  }
  plan_.arena_bytes = place_slots(plan_.slots);
  for (Step& step : plan_.steps) {
    for (Place& p : step.inputs)
      if (p.kind == Place::Kind::kArena) p.index = buffers_[size_t(p.index)].slot;
    for (Place& p : step.outputs)
      if (p.kind == Place::Kind::kArena) p.index = buffers_[size_t(p.index)].slot;
    if (step.workspace_slot >= 0) step.workspace_slot = buffers_[size_t(step.workspace_slot)].slot;
  }
}

Plan make_plan(Graph& graph, const PlanOptions& options, ConstantStore& store, bool consume) {
  // Orders the kernels, no more.
  const Ceilings neutral = options.device == DeviceKind::kCuda ? unmeasured_cuda_ceilings() : unmeasured_ceilings();
  Plan plan = Lowering(graph, options, options.ceilings ? *options.ceilings : neutral, store, consume).build();
  require_sound(plan);
  return plan;
}

}  // namespace ridgeline
