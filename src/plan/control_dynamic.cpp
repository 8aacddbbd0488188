// Branches and loops whose shapes change while they run: iteration by iteration on the host, each body planned anew for
// the shapes that it meets. Here, and nowhere else in a plan, memory is allocated while it runs.
#include <map>
#include <mutex>

#include "ir/interpret.h"
#include "plan/control.h"

namespace ridgeline {
namespace {

constexpr size_t kMostPlans = 64;  // of one step; then all are forgotten

class DynamicState {
 public:
  explicit DynamicState(const PlanOptions& options) : options_(options) {
    options_.forced.clear();
    options_.bindings.clear();
    options_.dry = false;
  }

  std::vector<Tensor> run(const Graph& body, int which, const std::vector<Tensor>& inputs) const {
    const std::shared_ptr<const Plan> plan = plan_for(body, which, inputs);
    if (!plan) {
      InterpretOptions interpreted;
      interpreted.threads = options_.threads;
      interpreted.in_loop = true;
      return interpret(body, inputs, interpreted);
    }
    std::vector<const void*> in;
    std::vector<void*> out;
    std::vector<Tensor> outputs;
    for (const Tensor& t : inputs) in.push_back(t.data());
    for (const PlanTensor& t : plan->outputs) {
      outputs.push_back(Tensor::zeros(t.dtype, t.shape));
      out.push_back(outputs.back().data());
    }
    Executor(plan).run(in, out);
    return outputs;
  }

 private:
  /// Null: a shape in the body depends on what it computes.
  std::shared_ptr<const Plan> plan_for(const Graph& body, int which, const std::vector<Tensor>& inputs) const {
    std::string key = std::to_string(which);
    for (const Tensor& t : inputs) key += t ? text(std::span<const int64_t>(t.shape())) : std::string("-");
    const std::lock_guard lock(mutex_);
    if (const auto found = plans_.find(key); found != plans_.end()) return found->second;
    if (plans_.size() >= kMostPlans) plans_.clear();
    return plans_[key] = make(body, inputs);
  }

  std::shared_ptr<const Plan> make(const Graph& body, const std::vector<Tensor>& inputs) const {
    Graph graph = body;
    for (size_t i = 0; i < inputs.size(); ++i) {
      ValueInfo& info = graph.value(graph.inputs[i]).info;
      if (!inputs[i]) continue;
      info = {inputs[i].dtype(), to_shape(inputs[i].shape()), std::nullopt, {}};
    }
    if (!graph.infer().empty()) return nullptr;
    for (ValueId v = 0; v < graph.value_count(); ++v) {
      const Value& value = graph.value(v);
      if (value.producer == kNoNode) continue;
      if (!value.info.shape || !known(value.shape())) return nullptr;
      if (element_count(extents(value.shape())) > LoopLimits::kElements) {
        fail(ErrorCode::kResource,
             "'{}' of shape {} is larger than the {} elements that values of changing shape may "
             "have",
             value.name, text(value.shape()), LoopLimits::kElements);
      }
    }
    return std::make_shared<const Plan>(make_plan(graph, options_, store_));
  }

  PlanOptions options_;
  mutable std::mutex mutex_;
  mutable ConstantStore store_;
  mutable std::map<std::string, std::shared_ptr<const Plan>> plans_;
};

void run_dynamic(const KernelCall& call, const Buffers& buffers, const ThreadPool&) {
  const Problem& problem = call.problem;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < problem.inputs.size(); ++i) {
    const Operand& operand = problem.inputs[i];
    inputs.push_back(!operand.present() ? Tensor()
                                        : Tensor::wrap(operand.dtype, operand.shape(),
                                                       std::shared_ptr<void>(buffers.inputs[i], [](void*) {})));
  }
  const auto& state = call.state_as<DynamicState>();
  const std::vector<Tensor> results = run_control(
      *problem.op, problem.attributes, inputs,
      [&](const Graph& body, int which, const std::vector<Tensor>& given) { return state.run(body, which, given); });
  for (size_t o = 0; o < problem.outputs.size(); ++o) {
    if (!problem.outputs[o].present() || !buffers.outputs[o]) continue;
    if (results[o].shape() != problem.outputs[o].shape() || results[o].dtype() != problem.outputs[o].dtype) {
      fail(ErrorCode::kBadInput, "its output {} came out as {}{}, planned was {}{}", o, name(results[o].dtype()),
           text(std::span<const int64_t>(results[o].shape())), name(problem.outputs[o].dtype),
           text(std::span<const int64_t>(problem.outputs[o].shape())));
    }
    copy_elements(results[o].view(), {buffers.outputs[o], problem.outputs[o].dtype, problem.outputs[o].layout});
  }
}

constexpr Kernel kDynamicKernel = {.name = "cpu.control_dynamic", .op = "Loop", .run = run_dynamic};

}  // namespace

KernelCall bind_dynamic_control(const Problem& problem, const PlanOptions& options) {
  KernelCall call;
  call.kernel = &kDynamicKernel;
  call.problem = problem;
  call.state = std::make_shared<DynamicState>(options);
  return call;
}

}  // namespace ridgeline
