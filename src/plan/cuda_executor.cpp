#include "plan/cuda_executor.h"

#include <algorithm>
#include <atomic>
#include <cassert>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>

#include "plan/state.h"

namespace ridgeline {
namespace {

int64_t now_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

std::string words(const Step& step) { return fmt::format("node '{}' ({})", step.name, step.call.problem.op->name); }

}  // namespace

// Two events a step, recorded by nodes of a graph: what lies between the two is the step and what it costs to start a
// node after an event; the latter is measured with an empty kernel.
struct CudaExecutor::Events {
  std::vector<cuda::Event> all;
  double overhead_ns = 0;
  explicit Events(size_t count) : all(count) {
    for (cuda::Event& e : all) cuda::check(cuda::driver().event_create(&e, 0), "making an event");
  }
  ~Events() {
    for (cuda::Event e : all) cuda::driver().event_destroy(e);
  }
  void record(size_t i, cuda::Stream stream) const {
    constexpr unsigned kExternal = 1;
    cuda::check(cuda::driver().event_record_with_flags(all[i], stream, kExternal), "recording an event");
  }
  double between_ns(size_t a, size_t b) const {
    float ms = 0;
    cuda::check(cuda::driver().event_elapsed_ms(&ms, all[a], all[b]), "reading a time");
    return double(ms) * 1e6;
  }
};

CudaExecutor::CudaExecutor(std::shared_ptr<const Plan> plan)
    : plan_(std::move(plan)), pool_(plan_->threads, plan_->lanes) {
  const char* const check = std::getenv("RIDGELINE_CUDA_CHECK");
  check_ = check && *check && *check != '0';
  load_kernels();
  place_memory();
  if (!check_) make_segments();
}

void CudaExecutor::load_kernels() {
  const std::vector<Step>& steps = plan_->steps;
  for (const Step& step : steps) calls_.push_back(step.call);
  std::atomic<size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    for (size_t s = next++; s < steps.size(); s = next++) {
      const Kernel& kernel = *steps[s].call.kernel;
      if (!kernel.source) continue;
      try {
        calls_[s].state = cuda::load(kernel.source(steps[s].call.problem, steps[s].call.tile));
      } catch (const Error& error) {
        const std::lock_guard lock(mutex);
        if (!failure)
          failure = std::make_exception_ptr(Error(error.code(), fmt::format("{}: {}", words(steps[s]), error.what())));
      }
    }
  };
  // Compiling takes a third of a second a kernel where the cache has none.
  std::vector<std::thread> threads;
  const unsigned count = std::clamp(std::thread::hardware_concurrency(), 1u, 16u);
  for (unsigned t = 1; t < count; ++t) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
}

void CudaExecutor::place_memory() {
  const Plan& plan = *plan_;
  const auto block = [&](const std::vector<int64_t>& sizes) {
    int64_t total = 0;
    std::vector<int64_t> offsets;
    for (int64_t bytes : sizes) {
      offsets.push_back(total);
      total += (bytes + kDeviceAlignment - 1) / kDeviceAlignment * kDeviceAlignment;
    }
    memory_.emplace_back(total);
    std::vector<void*> places;
    for (int64_t offset : offsets) places.push_back(static_cast<char*>(memory_.back().data()) + offset);
    return places;
  };
  std::vector<int64_t> sizes;
  for (const PlanTensor& t : plan.inputs) sizes.push_back(bytes_of(t.dtype, element_count(t.shape)));
  device_inputs_ = block(sizes);
  sizes.clear();
  for (const PlanTensor& t : plan.outputs) sizes.push_back(bytes_of(t.dtype, element_count(t.shape)));
  // State has one buffer, which is written in place.
  const std::vector<StatePair> state = state_pairs(plan);
  for (const StatePair& pair : state) sizes[size_t(pair.output)] = 0;
  device_outputs_ = block(sizes);
  for (const StatePair& pair : state) device_outputs_[size_t(pair.output)] = device_inputs_[size_t(pair.input)];
  sizes.clear();
  // Constants that host steps alone read stay where they are.
  std::vector<char> wanted(plan.constants.size(), 0);
  for (const Step& step : plan.steps) {
    if (on_host(step.call.problem, *step.call.kernel)) continue;
    for (const Place& p : step.inputs)
      if (p.kind == Place::Kind::kConstant) wanted[size_t(p.index)] = 1;
  }
  for (size_t c = 0; c < plan.constants.size(); ++c) sizes.push_back(wanted[c] ? plan.constants[c].bytes() : 0);
  device_constants_ = block(sizes);
  for (size_t c = 0; c < plan.constants.size(); ++c)
    if (wanted[c]) queue_.upload(device_constants_[c], plan.constants[c].data(), plan.constants[c].bytes());
  memory_.emplace_back(plan.arena_bytes);
  arena_ = memory_.back().data();
  queue_.wait("copying the weights to the device");
  const auto address = [&](const Place& p) -> void* {
    switch (p.kind) {
      case Place::Kind::kArena:
        return static_cast<char*>(arena_) + plan.slots[size_t(p.index)].offset_bytes + p.offset_bytes;
      case Place::Kind::kConstant:
        return static_cast<char*>(device_constants_[size_t(p.index)]) + p.offset_bytes;
      case Place::Kind::kInput:
        return static_cast<char*>(device_inputs_[size_t(p.index)]) + p.offset_bytes;
      case Place::Kind::kOutput:
        return static_cast<char*>(device_outputs_[size_t(p.index)]) + p.offset_bytes;
      default:
        return nullptr;
    }
  };
  for (const Step& step : plan.steps) {
    StepBuffers b;
    for (const Place& p : step.inputs) b.inputs.push_back(address(p));
    for (const Place& p : step.outputs) b.outputs.push_back(address(p));
    if (step.workspace_slot >= 0)
      b.workspace = static_cast<char*>(arena_) + plan.slots[size_t(step.workspace_slot)].offset_bytes;
    buffers_.push_back(std::move(b));
  }
}

void CudaExecutor::launch_step(size_t s, cuda::Stream stream) {
  const StepBuffers& b = buffers_[s];
  calls_[s].kernel->launch(calls_[s], {b.inputs.data(), b.outputs.data(), b.workspace}, stream);
}

void CudaExecutor::make_segments() {
  const std::vector<Step>& steps = plan_->steps;
  for (size_t s = 0; s < steps.size();) {
    Segment segment;
    segment.first = s;
    segment.host = on_host(steps[s].call.problem, *steps[s].call.kernel);
    do {
      ++s;
    } while (!segment.host && s < steps.size() && !on_host(steps[s].call.problem, *steps[s].call.kernel));
    segment.last = s;
    if (!segment.host)
      segment.graph = std::make_unique<cuda::CapturedGraph>(queue_, [&](cuda::Stream stream) {
        for (size_t i = segment.first; i < segment.last; ++i) launch_step(i, stream);
      });
    segments_.push_back(std::move(segment));
  }
}

// A step of a kernel of the CPU: its operands come to the host, its results go back.
void CudaExecutor::run_on_host(size_t s) {
  const Step& step = plan_->steps[s];
  const Problem& p = step.call.problem;
  std::vector<std::shared_ptr<void>> keep;
  std::vector<void*> in, out;
  const auto host = [&](const Operand& o) {
    keep.push_back(allocate(std::max<int64_t>(64, bytes_of(o.dtype, o.layout.span()))));
    return keep.back().get();
  };
  for (size_t i = 0; i < step.inputs.size(); ++i) {
    const Place& place = step.inputs[i];
    if (place.kind == Place::Kind::kNone) {
      in.push_back(nullptr);
    } else if (place.kind == Place::Kind::kConstant) {
      in.push_back(static_cast<char*>(plan_->constants[size_t(place.index)].data()) + place.offset_bytes);
    } else {
      in.push_back(host(p.inputs[i]));
      queue_.download(in.back(), buffers_[s].inputs[i], bytes_of(p.inputs[i].dtype, p.inputs[i].layout.span()));
    }
  }
  for (size_t o = 0; o < step.outputs.size(); ++o) {
    const bool there = step.outputs[o].kind != Place::Kind::kNone && p.outputs[o].present();
    out.push_back(there ? host(p.outputs[o]) : nullptr);
    // What lies between strided elements belongs to others.
    if (there && !p.outputs[o].layout.is_dense())
      queue_.download(out.back(), buffers_[s].outputs[o], bytes_of(p.outputs[o].dtype, p.outputs[o].layout.span()));
  }
  queue_.wait("the work before " + words(step));
  const std::shared_ptr<void> workspace = allocate(step.call.workspace_bytes);
  try {
    step.call.kernel->run(step.call, {in.data(), out.data(), workspace.get()}, pool_);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", words(step), error.what()));
  }
  for (size_t o = 0; o < out.size(); ++o)
    if (out[o]) queue_.upload(buffers_[s].outputs[o], out[o], bytes_of(p.outputs[o].dtype, p.outputs[o].layout.span()));
  queue_.wait("copying results of " + words(step));
}

void CudaExecutor::run_step(size_t s) {
  const Step& step = plan_->steps[s];
  if (on_host(step.call.problem, *step.call.kernel)) return run_on_host(s);
  launch_step(s, queue_.stream());
  queue_.wait(fmt::format("{} by {}: {}", words(step), step.call.kernel->name, step.call.problem.text()));
}

void CudaExecutor::run_segments() {
  if (check_) {
    for (size_t s = 0; s < plan_->steps.size(); ++s) run_step(s);
    return;
  }
  for (const Segment& segment : segments_) {
    if (segment.host)
      run_on_host(segment.first);
    else
      segment.graph->replay();
  }
}

void CudaExecutor::upload(const std::vector<const void*>& inputs) {
  assert(inputs.size() == plan_->inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const PlanTensor& t = plan_->inputs[i];
    queue_.upload(device_inputs_[i], inputs[i], bytes_of(t.dtype, element_count(t.shape)));
  }
}

void CudaExecutor::download(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) {
  const Plan& plan = *plan_;
  std::vector<char> passed(plan.outputs.size(), 0);
  for (const Plan::PassThrough& p : plan.pass_through) {
    if (p.from.kind == Place::Kind::kOutput) continue;
    const PlanTensor& out = plan.outputs[size_t(p.output)];
    const int64_t bytes = bytes_of(out.dtype, element_count(out.shape));
    const void* from =
        p.from.kind == Place::Kind::kInput ? inputs[size_t(p.from.index)] : plan.constants[size_t(p.from.index)].data();
    if (bytes > 0)
      std::memmove(outputs[size_t(p.output)], static_cast<const char*>(from) + p.from.offset_bytes, size_t(bytes));
    passed[size_t(p.output)] = 1;
  }
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (passed[o]) continue;
    const void* from = device_outputs_[o];
    for (const Plan::PassThrough& p : plan.pass_through)
      if (p.output == int(o) && p.from.kind == Place::Kind::kOutput)
        from = static_cast<char*>(device_outputs_[size_t(p.from.index)]) + p.from.offset_bytes;
    queue_.download(outputs[o], from, bytes_of(plan.outputs[o].dtype, element_count(plan.outputs[o].shape)));
  }
  queue_.wait("the plan's kernels (RIDGELINE_CUDA_CHECK=1 finds the node)");
}

void CudaExecutor::run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs) {
  cuda::enter_device();
  upload(inputs);
  run_segments();
  download(inputs, outputs);
}

double CudaExecutor::replay_ns() {
  cuda::enter_device();
  return watch_.time_ns(queue_, [&] { run_segments(); });
}

void CudaExecutor::run_profiled(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                                std::vector<Executor::StepTime>& times) {
  cuda::enter_device();
  const std::vector<Step>& steps = plan_->steps;
  const bool whole = plan_->host_steps() == 0 && !check_;
  if (!events_) {
    events_ = std::make_shared<Events>(2 * steps.size() + 2);
    cuda::Source source;
    source.file = "probes.cu";
    source.entry = "nothing";
    source.defines = {"THREADS=32"};
    const auto nothing = cuda::load(source);
    void* const address = arena_;
    const size_t last = 2 * steps.size();
    const cuda::CapturedGraph empty(queue_, [&](cuda::Stream stream) {
      events_->record(last, stream);
      cuda::launch(*nothing, {1}, 32, stream, {}, address);
      events_->record(last + 1, stream);
    });
    double least = 1e9;
    for (int i = 0; i < 20; ++i) {
      empty.replay();
      queue_.wait("timing an empty kernel");
      least = std::min(least, events_->between_ns(last, last + 1));
    }
    // What a node costs in a chain belongs to the step: floors have it too.
    events_->overhead_ns = std::max(0.0, least - 600);
  }
  if (whole && !profiled_)
    profiled_ = std::make_unique<cuda::CapturedGraph>(queue_, [&](cuda::Stream stream) {
      for (size_t s = 0; s < steps.size(); ++s) {
        events_->record(2 * s, stream);
        launch_step(s, stream);
        events_->record(2 * s + 1, stream);
      }
    });
  upload(inputs);
  int64_t at = 0;
  const auto add = [&](size_t s, double ns) {
    times[s] = {at, at + int64_t(ns), 0};
    at += int64_t(ns);
  };
  if (whole) {
    profiled_->replay();
    download(inputs, outputs);
    for (size_t s = 0; s < steps.size(); ++s)
      add(s, std::max(0.0, events_->between_ns(2 * s, 2 * s + 1) - events_->overhead_ns));
    return;
  }
  for (size_t s = 0; s < steps.size(); ++s) {
    if (on_host(steps[s].call.problem, *steps[s].call.kernel)) {
      queue_.wait("the steps before");
      const int64_t begin = now_ns();
      run_on_host(s);
      add(s, double(now_ns() - begin));
    } else {
      add(s, watch_.time_ns(queue_, [&] { launch_step(s, queue_.stream()); }));
    }
  }
  download(inputs, outputs);
}

void CudaExecutor::run_observed(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                                const std::function<void(int, int, const TensorView&)>& observe) {
  cuda::enter_device();
  upload(inputs);
  for (size_t s = 0; s < plan_->steps.size(); ++s) {
    run_step(s);
    const Problem& p = plan_->steps[s].call.problem;
    for (size_t o = 0; o < buffers_[s].outputs.size(); ++o) {
      const Operand& operand = p.outputs[o];
      if (!operand.present() || !buffers_[s].outputs[o]) continue;
      const int64_t bytes = bytes_of(operand.dtype, operand.layout.span());
      const std::shared_ptr<void> host = allocate(std::max<int64_t>(64, bytes));
      queue_.download(host.get(), buffers_[s].outputs[o], bytes);
      queue_.wait("reading a value");
      observe(int(s), int(o), {host.get(), operand.dtype, operand.layout});
    }
  }
  download(inputs, outputs);
}

// 0xff in every byte: a NaN in every float format, -1 in integers.
void CudaExecutor::poison() {
  queue_.fill(arena_, 0xff, plan_->arena_bytes);
  queue_.wait("poisoning the arena");
}

}  // namespace ridgeline
