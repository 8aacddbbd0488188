// Runs a plan of a GPU: constants and arena on the device, every stretch of kernels between two host steps one graph.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/graph.h"
#include "plan/plan.h"

namespace ridgeline {

/// Compiles (in parallel) and loads the kernels, uploads the constants, captures the graphs. One thread at a time.
/// RIDGELINE_CUDA_CHECK=1: every step is launched by itself and waited for, so that an error names its node.
class CudaExecutor {
 public:
  explicit CudaExecutor(std::shared_ptr<const Plan> plan);
  /// Buffers of the caller on the host: copied to the device, and back.
  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs);
  /// The steps once more on what the device holds; its own time in ns, transfers between host and device apart.
  double replay_ns();
  void run_profiled(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                    std::vector<Executor::StepTime>& times);
  void run_observed(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                    const std::function<void(int step, int output, const TensorView& value)>& observe);
  void poison();

 private:
  struct StepBuffers {
    std::vector<void*> inputs, outputs;
    void* workspace = nullptr;
  };
  struct Segment {
    size_t first = 0, last = 0;  // steps [first, last)
    bool host = false;
    std::unique_ptr<cuda::CapturedGraph> graph;
  };
  struct Events;

  void load_kernels();
  void place_memory();
  void make_segments();
  void upload(const std::vector<const void*>& inputs);
  void download(const std::vector<const void*>& inputs, const std::vector<void*>& outputs);
  void launch_step(size_t step, cuda::Stream stream);
  void run_on_host(size_t step);
  void run_step(size_t step);  // and waits
  void run_segments();

  std::shared_ptr<const Plan> plan_;
  cuda::Queue queue_;
  cuda::Stopwatch watch_;
  std::vector<KernelCall> calls_;  // with loaded code
  std::vector<cuda::Memory> memory_;
  std::vector<void*> device_inputs_, device_outputs_;
  void* arena_ = nullptr;
  std::vector<void*> device_constants_;
  std::vector<StepBuffers> buffers_;
  std::vector<Segment> segments_;
  std::unique_ptr<cuda::CapturedGraph> profiled_;
  std::shared_ptr<Events> events_;
  ThreadPool pool_;
  bool check_ = false;
};

}  // namespace ridgeline
