// Op: a problem from layouts, a kernel from the dispatcher, constants packed; then runs on the caller's buffers.
#include <algorithm>
#include <array>
#include <cassert>

#include "ir/graph.h"
#include "kernels/kernel.h"
#include "ops/catalogue.h"
#include "plan/plan.h"
#include "session/api_context.h"
#include "tune/known.h"

namespace ridgeline {
namespace {

constexpr size_t kMostOperands = 64;  // of one call: their addresses stand on the stack

const OpSchema& schema_named(std::string_view name) {
  const OpSchema* op = find_op_in_any_domain(name);
  if (!op) fail(ErrorCode::kUsage, "there is no operator '{}'; `ridgeline op list` names them", name);
  return *op;
}

Attributes attributes_of(const OpSchema& op, const OpAttributes& given) {
  Attributes attributes;
  for (const OpAttribute& a : given) {
    const auto known = std::find_if(op.attributes.begin(), op.attributes.end(),
                                    [&](const AttributeSpec& s) { return s.name == a.name; });
    if (known == op.attributes.end()) {
      std::string names;
      for (const AttributeSpec& s : op.attributes) names += (names.empty() ? "" : ", ") + std::string(s.name);
      fail(ErrorCode::kUsage, "{} has no attribute '{}'; it has: {}", op.name, a.name, names.empty() ? "none" : names);
    }
    std::visit([&](const auto& value) { attributes.set(a.name, value); }, a.value);
  }
  return attributes;
}

int required_outputs(const OpSchema& op) {
  const auto required =
      std::count_if(op.outputs.begin(), op.outputs.end(), [](const OutputSpec& o) { return !o.optional; });
  return std::max(1, int(required));
}

Operand operand_of(const OpInput& input) {
  Operand operand;
  operand.dtype = input.dtype;
  operand.layout = input.layout;
  operand.is_constant = bool(input.constant);
  operand.constant = input.constant;
  return operand;
}

Problem problem_of(const OpSchema& op, const std::vector<OpInput>& inputs, const OpAttributes& given,
                   const OpOptions& options, int threads) {
  Problem problem;
  problem.op = &op;
  problem.attributes = attributes_of(op, given);
  problem.threads = threads;
  for (const OpInput& input : inputs) problem.inputs.push_back(operand_of(input));
  while (!problem.inputs.empty() && !problem.inputs.back().present()) problem.inputs.pop_back();
  problem.op_inputs = int(problem.inputs.size());

  std::vector<ValueInfo> infos(problem.inputs.size());
  std::vector<const ValueInfo*> known;
  for (size_t i = 0; i < infos.size(); ++i) {
    const Operand& operand = problem.inputs[i];
    if (operand.present()) infos[i] = {operand.dtype, to_shape(operand.shape()), std::nullopt, operand.constant};
    known.push_back(operand.present() ? &infos[i] : nullptr);
  }
  const int outputs = options.outputs > 0 ? options.outputs : required_outputs(op);
  const std::vector<ValueInfo> results = infer_node(op, problem.attributes, std::string(op.name), known, outputs);
  for (size_t o = 0; o < results.size(); ++o) {
    Operand operand;
    operand.dtype = results[o].dtype;
    if (results[o].shape) operand.layout = Layout(extents(*results[o].shape));
    if (o < options.layouts.size()) {
      if (options.layouts[o].shape != operand.shape()) {
        fail(ErrorCode::kUsage, "{}: output {} has the shape {}, but a layout of {} was given", op.name, o,
             text(operand.shape()), text(options.layouts[o].shape));
      }
      operand.layout = options.layouts[o];
    }
    problem.outputs.push_back(std::move(operand));
  }
  return problem;
}

}  // namespace

OpInput OpInput::constant_of(Tensor tensor) {
  OpInput input(tensor.dtype(), tensor.shape());
  input.constant = std::move(tensor);
  return input;
}

struct Op::State {
  Problem asked;          // as given: all of the operator's inputs
  std::vector<int> from;  // inputs of the call -> inputs of the operator
  Choice choice;
  KernelCall call;
  std::vector<Tensor> constants;  // of the call's inputs, as the kernel reads them; empty: the caller's
  std::shared_ptr<void> workspace;
  ThreadPool pool;
  Cost cost;
  Floor floor;
  bool nothing_to_do = false;  // every output is empty

  explicit State(int threads) : pool(threads) {}
};

Op::Op(std::string_view name, const std::vector<OpInput>& inputs, const OpAttributes& attributes,
       const OpOptions& options, const Context& context)
    : state_(std::make_unique<State>(context.threads())) {
  State& s = *state_;
  const OpSchema& op = schema_named(name);
  if (inputs.size() > kMostOperands)
    fail(ErrorCode::kUsage, "{}: {} inputs; at most {} at once", name, inputs.size(), kMostOperands);
  s.asked = problem_of(op, inputs, attributes, options, context.threads());
  if (s.asked.outputs.size() > kMostOperands)
    fail(ErrorCode::kUsage, "{}: at most {} outputs at once", name, kMostOperands);
  Problem problem = s.asked;
  for (int i = 0; i < problem.op_inputs; ++i) s.from.push_back(i);
  if (op.is_elementwise()) {
    // Elementwise work is a Program over the operands that are present.
    std::vector<DType> dtypes;
    for (const Operand& i : problem.inputs) dtypes.push_back(i.dtype);
    problem.program = std::make_shared<const Program>(program_of(op, problem.attributes, dtypes));
    std::erase_if(s.from, [&](int i) { return !problem.inputs[size_t(i)].present(); });
    std::erase_if(problem.inputs, [](const Operand& o) { return !o.present(); });
    problem.inputs.resize(std::min(problem.inputs.size(), problem.program->inputs.size()));
    problem.op_inputs = int(problem.inputs.size());
    s.from.resize(problem.inputs.size());
  }
  const Ceilings& ceilings = context.state().ceilings;
  s.choice = choose(problem, ceilings, options.kernel);
  s.cost = cost_with(problem, s.choice);
  s.floor = step_floor(problem, s.cost, ceilings, context.threads());
  s.call = bind_kernel(problem, s.choice.winner());
  s.workspace = allocate(s.call.workspace_bytes);
  s.constants.resize(problem.inputs.size());
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    const Tensor& source = problem.inputs[i].constant;
    if (!source) continue;
    s.constants[i] = packed_constant(s.call, int(i), source);
    // What was packed need not be kept twice; small contents (axes, pads) stay for kernels that read them.
    if (s.constants[i].data() != source.data())
      s.call.problem.inputs[i].constant = s.asked.inputs[size_t(s.from[i])].constant = Tensor();
  }
  s.nothing_to_do = std::all_of(problem.outputs.begin(), problem.outputs.end(),
                                [](const Operand& o) { return !o.present() || o.elements() == 0; });
}

Op::Op(Op&&) noexcept = default;
Op& Op::operator=(Op&&) noexcept = default;
Op::~Op() = default;

int Op::outputs() const { return int(state_->asked.outputs.size()); }
DType Op::output_dtype(int output) const { return state_->asked.outputs.at(size_t(output)).dtype; }
const Layout& Op::output_layout(int output) const { return state_->asked.outputs.at(size_t(output)).layout; }
std::string_view Op::kernel() const { return state_->call.kernel->name; }
std::string Op::problem() const { return state_->asked.text(); }
int64_t Op::workspace_bytes() const { return state_->call.workspace_bytes; }

void Op::run(std::span<const void* const> inputs, std::span<void* const> outputs) {
  State& s = *state_;
  if (s.nothing_to_do) return;
  std::array<void*, kMostOperands> in, out;
  for (size_t i = 0; i < s.from.size(); ++i) {
    const size_t given = size_t(s.from[i]);
    if (s.constants[i])
      in[i] = s.constants[i].data();
    else
      in[i] = given < inputs.size() ? const_cast<void*>(inputs[given]) : nullptr;
    assert(in[i] || !s.call.problem.inputs[i].present() || s.call.problem.inputs[i].elements() == 0);
  }
  for (size_t o = 0; o < s.asked.outputs.size(); ++o) out[o] = o < outputs.size() ? outputs[o] : nullptr;
  s.call.kernel->run(s.call, {in.data(), out.data(), s.workspace.get()}, s.pool);
}

std::vector<Tensor> Op::operator()(const std::vector<Tensor>& inputs) {
  const State& s = *state_;
  std::array<const void*, kMostOperands> in{};
  std::array<void*, kMostOperands> out{};
  for (int i = 0; i < s.asked.op_inputs; ++i) {
    const Operand& operand = s.asked.input(i);
    if (!operand.present() || operand.is_constant) continue;
    const Tensor given = size_t(i) < inputs.size() ? inputs[size_t(i)] : Tensor();
    if (given.dtype() != operand.dtype || given.shape() != operand.shape() || !operand.layout.is_row_major()) {
      fail(ErrorCode::kBadInput, "{}: input {} was planned as {}{}{}, but is {}{}", s.asked.op->name, i,
           name(operand.dtype), text(operand.shape()), operand.layout.is_row_major() ? "" : " with strides",
           name(given.dtype()), text(given.shape()));
    }
    in[size_t(i)] = given.data();
  }
  std::vector<Tensor> results;
  for (size_t o = 0; o < s.asked.outputs.size(); ++o) {
    const Operand& operand = s.asked.outputs[o];
    if (!operand.layout.is_row_major())
      fail(ErrorCode::kBadInput, "{}: output {} was planned with strides: run it on buffers", s.asked.op->name, o);
    results.emplace_back(operand.dtype, operand.shape());
    out[o] = results.back().data();
  }
  run(std::span<const void* const>(in.data(), size_t(s.asked.op_inputs)),
      std::span<void* const>(out.data(), results.size()));
  return results;
}

std::vector<OpCandidate> Op::candidates() const {
  std::vector<OpCandidate> out;
  for (const Candidate& c : state_->choice.candidates)
    out.push_back({std::string(c.kernel->name), c.support.ok, c.support.reason, c.estimate_ns / 1e3});
  return out;
}

OpCost Op::cost() const {
  const State& s = *state_;
  return {s.cost.flops, s.cost.bytes(), s.floor.time_ns / 1e3, std::string(name(s.floor.bound))};
}

namespace {

void append(std::string& key, const Tensor& t) {
  key += name(t.dtype());
  for (int64_t extent : t.shape()) {
    key.append(reinterpret_cast<const char*>(&extent), sizeof extent);
  }
  key += ';';
}

template <typename T>
void append_bytes(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(value.data()), value.size() * sizeof(value[0]));
}

void append(std::string& key, const OpAttribute& a) {
  key += a.name;
  key += char('0' + a.value.index());
  struct Appender {
    std::string& key;
    void operator()(int64_t v) const { key.append(reinterpret_cast<const char*>(&v), sizeof v); }
    void operator()(double v) const { key.append(reinterpret_cast<const char*>(&v), sizeof v); }
    void operator()(const std::string& v) const { key += v; }
    void operator()(const std::vector<int64_t>& v) const { append_bytes(key, v); }
    void operator()(const std::vector<double>& v) const { append_bytes(key, v); }
    void operator()(const std::vector<std::string>& v) const {
      for (const std::string& word : v) (key += word) += ',';
    }
    void operator()(const Tensor& v) const {
      append(key, v);
      key.append(static_cast<const char*>(v.data()), size_t(v.bytes()));
    }
  };
  std::visit(Appender{key}, a.value);
  key += ';';
}

}  // namespace

std::vector<Tensor> call_op(std::string_view name, const std::vector<Tensor>& inputs, const OpAttributes& attributes,
                            int outputs, Context& context) {
  Context::State& state = context.state();
  std::string key(name);
  key += char('0' + outputs);
  for (const Tensor& t : inputs) append(key, t);
  for (const OpAttribute& a : attributes) append(key, a);
  std::vector<int> needed;
  if (const auto it = state.needed.find(key); it != state.needed.end()) needed = it->second;
  std::string full = key;
  auto append_content = [&](int i) {
    full.append(static_cast<const char*>(inputs[size_t(i)].data()), size_t(inputs[size_t(i)].bytes()));
  };
  for (int i : needed) append_content(i);
  if (Op* op = state.find(full)) return (*op)(inputs);

  std::vector<OpInput> planned;
  for (const Tensor& t : inputs) planned.push_back(t ? OpInput(t.dtype(), t.shape()) : OpInput());
  for (int i : needed) planned[size_t(i)] = OpInput::constant_of(inputs[size_t(i)].clone());
  OpOptions options;
  options.outputs = outputs;
  for (;;) {
    try {
      Op op(name, planned, attributes, options, context);
      if (!needed.empty()) state.needed[key] = needed;
      return state.put(std::move(full), std::move(op))(inputs);
    } catch (const NeedsValues& unknown) {
      const int i = unknown.input();
      if (i < 0 || i >= int(inputs.size()) || planned[size_t(i)].constant) throw;
      planned[size_t(i)] = OpInput::constant_of(inputs[size_t(i)].clone());
      needed.push_back(i);
      append_content(i);
    }
  }
}

}  // namespace ridgeline
