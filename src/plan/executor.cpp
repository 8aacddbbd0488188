#include <cassert>
#include <chrono>
#include <cstring>

#include "plan/cuda_executor.h"

namespace ridgeline {
namespace {

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

Executor::Executor(std::shared_ptr<const Plan> plan)
    : plan_(std::move(plan)),
      arena_(plan_->device == DeviceKind::kCpu ? allocate(plan_->arena_bytes) : nullptr),
      pool_(plan_->threads, plan_->lanes) {
  if (plan_->device == DeviceKind::kCuda) {
    cuda_ = std::make_unique<CudaExecutor>(plan_);
    return;
  }
  char* const arena = static_cast<char*>(arena_.get());
  const size_t steps = plan_->steps.size();
  step_inputs_.resize(steps);
  step_outputs_.resize(steps);
  workspaces_.resize(steps, nullptr);
  auto address = [&](const Place& p) -> void* {
    switch (p.kind) {
      case Place::Kind::kArena:
        return arena + plan_->slots[size_t(p.index)].offset_bytes + p.offset_bytes;
      case Place::Kind::kConstant:
        return static_cast<char*>(plan_->constants[size_t(p.index)].data()) + p.offset_bytes;
      default:
        return nullptr;  // an input or output of the caller: bound before each run
    }
  };
  for (size_t s = 0; s < steps; ++s) {
    const Step& step = plan_->steps[s];
    for (const Place& p : step.inputs) step_inputs_[s].push_back(address(p));
    for (const Place& p : step.outputs) step_outputs_[s].push_back(address(p));
    if (step.workspace_slot >= 0) workspaces_[s] = arena + plan_->slots[size_t(step.workspace_slot)].offset_bytes;
  }
}

Executor::Executor(Executor&&) noexcept = default;
Executor::~Executor() = default;

void Executor::bind(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) {
  assert(inputs.size() == plan_->inputs.size() && outputs.size() == plan_->outputs.size());
  auto place = [&](const Place& p, void*& slot) {
    if (p.kind == Place::Kind::kInput)
      slot = const_cast<char*>(static_cast<const char*>(inputs[size_t(p.index)])) + p.offset_bytes;
    if (p.kind == Place::Kind::kOutput) slot = static_cast<char*>(outputs[size_t(p.index)]) + p.offset_bytes;
  };
  for (size_t s = 0; s < plan_->steps.size(); ++s) {
    const Step& step = plan_->steps[s];
    for (size_t i = 0; i < step.inputs.size(); ++i) place(step.inputs[i], step_inputs_[s][i]);
    for (size_t o = 0; o < step.outputs.size(); ++o) place(step.outputs[o], step_outputs_[s][o]);
  }
}

namespace {

void pass_through(const Plan& plan, const std::vector<const void*>& inputs, const std::vector<void*>& outputs) {
  for (const Plan::PassThrough& p : plan.pass_through) {
    const PlanTensor& out = plan.outputs[size_t(p.output)];
    const int64_t bytes = bytes_of(out.dtype, element_count(out.shape));
    const void* from = p.from.kind == Place::Kind::kInput    ? inputs[size_t(p.from.index)]
                       : p.from.kind == Place::Kind::kOutput ? outputs[size_t(p.from.index)]
                                                             : plan.constants[size_t(p.from.index)].data();
    void* const to = outputs[size_t(p.output)];
    if (bytes > 0 && from != to) std::memmove(to, static_cast<const char*>(from) + p.from.offset_bytes, size_t(bytes));
  }
}

// What a kernel says against the content of its operands (an index out of range) names the node.
void run_step(const Step& step, const Buffers& buffers, const ThreadPool& pool) {
  try {
    step.call.kernel->run(step.call, buffers, pool);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("node '{}' ({}): {}", step.name, step.call.problem.op->name, error.what()));
  }
}

}  // namespace

void Executor::run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) {
  if (cuda_) return cuda_->run(inputs, outputs);
  const PoolSession session;
  bind(inputs, outputs);
  const std::vector<Step>& steps = plan_->steps;
  for (size_t s = 0; s < steps.size(); ++s) {
    run_step(steps[s], {step_inputs_[s].data(), step_outputs_[s].data(), workspaces_[s]}, pool_);
  }
  pass_through(*plan_, inputs, outputs);
}

void Executor::run_profiled(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                            std::vector<StepTime>& times) {
  if (cuda_) return cuda_->run_profiled(inputs, outputs, times);
  const PoolSession session;
  bind(inputs, outputs);
  const std::vector<Step>& steps = plan_->steps;
  ThreadPool::take_wait_ns();
  for (size_t s = 0; s < steps.size(); ++s) {
    times[s].start_ns = now_ns();
    run_step(steps[s], {step_inputs_[s].data(), step_outputs_[s].data(), workspaces_[s]}, pool_);
    times[s].end_ns = now_ns();
    times[s].wait_ns = ThreadPool::take_wait_ns();
  }
  pass_through(*plan_, inputs, outputs);
}

void Executor::run_observed(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                            const std::function<void(int, int, const TensorView&)>& observe) {
  if (cuda_) return cuda_->run_observed(inputs, outputs, observe);
  const PoolSession session;
  bind(inputs, outputs);
  const std::vector<Step>& steps = plan_->steps;
  for (size_t s = 0; s < steps.size(); ++s) {
    run_step(steps[s], {step_inputs_[s].data(), step_outputs_[s].data(), workspaces_[s]}, pool_);
    for (size_t o = 0; o < steps[s].outputs.size(); ++o) {
      const Operand& operand = steps[s].call.problem.outputs[o];
      if (operand.present() && step_outputs_[s][o])
        observe(int(s), int(o), {step_outputs_[s][o], operand.dtype, operand.layout});
    }
  }
  pass_through(*plan_, inputs, outputs);
}

// 0xff in every byte: a NaN in every float format, -1 in integers.
void Executor::poison() {
  if (cuda_) return cuda_->poison();
  std::memset(arena_.get(), 0xff, size_t(plan_->arena_bytes));
}

double Executor::timed_ns(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) {
  if (cuda_) return cuda_->replay_ns();
  const int64_t begin = now_ns();
  run(inputs, outputs);
  return double(now_ns() - begin);
}

}  // namespace ridgeline
