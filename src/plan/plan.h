// Plan: an immutable list of steps over one arena, made for one binding of shapes. Everything hard is decided here; the
// executor is a loop over steps that allocates nothing.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "kernels/kernel.h"
#include "machine/roofline.h"

namespace ridgeline {

/// Packed weights, keyed by constant and packing, shared by all plans of a model.
class ConstantStore {
 public:
  struct Key {
    uint64_t constant_id;
    std::string packing;
    auto operator<=>(const Key&) const = default;
  };
  Tensor find(const Key& key) const;
  void put(const Key& key, Tensor tensor);
  int64_t bytes() const;
  void each(const std::function<void(const Key&, const Tensor&)>& visit) const;

 private:
  mutable std::mutex mutex_;
  std::map<Key, Tensor> tensors_;
};

/// Where a tensor of the plan lives.
struct Place {
  enum class Kind : uint8_t { kNone, kArena, kInput, kOutput, kConstant };
  Kind kind = Kind::kNone;
  int index = -1;            // slot, graph input, graph output or constant
  int64_t offset_bytes = 0;  // of a view within it
};

struct Slot {
  int64_t offset_bytes = 0;  // in the arena
  int64_t bytes = 0;
  int first_step = 0, last_step = 0;  // live in [first, last]
};

struct Step {
  enum class Kind : uint8_t { kKernel, kCopy, kBranch, kLoop, kBarrier };  // the last three are reserved
  Kind kind = Kind::kKernel;
  KernelCall call;  // kCopy: the "Copy" operator's kernel (a layout change)
  std::vector<Place> inputs, outputs;
  int workspace_slot = -1;
  std::string name;                 // the node's
  std::vector<std::string> origin;  // the imported nodes
  Choice choice;                    // candidates and reasons
  Cost cost;
  double predicted_ns = 0;
  double floor_ns = 0;
  std::string bound;  // compute, memory, launch, latency
};

struct PlanTensor {  // a graph input or output as the caller sees it: row-major
  std::string name;
  DType dtype = DType::kNone;
  Extents shape;
};

/// How the images of a plan are stored, and what that was chosen by: sums of estimates and copies.
struct LayoutSummary {
  int images = 0, last = 0;  // that may be stored channels last, and that are
  double chosen_ns = 0, all_last_ns = 0, all_planar_ns = 0;
};

struct Plan {
  LayoutSummary layouts;
  std::vector<Step> steps;
  std::vector<Slot> slots;
  int64_t arena_bytes = 0;
  int64_t packing_peak_bytes = 0;  // most that weights took while this plan was made: those to pack and those packed
  std::vector<Tensor> constants;   // as kernels read them, shared with the ConstantStore
  std::vector<PlanTensor> inputs, outputs;
  /// Graph outputs that no step writes: an input passed through, or a constant.
  struct PassThrough {
    int output;
    Place from;
  };
  std::vector<PassThrough> pass_through;
  DeviceKind device = DeviceKind::kCpu;  // where arena, constants, inputs and outputs of the steps are
  int threads = 1;
  /// Into how many parts a step is cut at most; more than `threads` in a deterministic plan.
  int lanes = 1;

  int64_t constant_bytes() const;
  int64_t bytes_moved() const;  // over the steps, workspace and reorders included
  int64_t peak_bytes() const;   // packed constants + arena + graph inputs and outputs
  /// What the card holds of a GPU's plan: the executor places each tensor at a multiple of kDeviceAlignment.
  int64_t device_bytes() const;
  int64_t peak_bytes_with_packing() const;  // the larger of peak_bytes and what making the plan took
  int kernel_count() const { return int(steps.size()); }
  /// Steps of a GPU's plan that run on the host, their operands copied there and back.
  int host_steps() const;
  std::string text() const;  // golden-tested
};

inline constexpr int64_t kDeviceAlignment = 256;  // what the driver's allocations have; arena slots have 64

/// Steps of a deterministic plan are cut for so many threads whatever the number that runs them. More would serve
/// larger machines and cost small ones: docs/scheduling.md has the figures.
inline constexpr int kDeterministicLanes = 8;

struct PlanOptions {
  DeviceKind device = DeviceKind::kCpu;
  int threads = 0;                            // 0: what the container allows
  Bindings bindings;                          // symbols -> extents; open ones are 1
  bool reference_only = false;                // every step on the reference kernel: the control
  bool views = true;                          // reshape, transpose, slice, split as strides, in-place, concat in place
  std::map<std::string, std::string> forced;  // node name -> kernel name
  /// A kernel whose weights stand packed in the store is taken before one that has to pack them anew, unless that one
  /// is estimated a quarter faster: for another binding of a planned model, which is then planned in milliseconds.
  bool keep_packings = false;
  /// What a byte of packed weights and workspace costs beside time: kernels are chosen by estimate + price * bytes.
  double ns_per_byte = 0;
  /// Only to learn what the plan takes: weights get their place, but are not packed. Such a plan must not run.
  bool dry = false;
  /// Results that are the same to the bit for any number of threads and whatever was measured or tuned on the machine:
  /// kernels are chosen by neutral ceilings and cut their work into kDeterministicLanes parts. The instruction sets and
  /// cache sizes of the machine still count.
  bool deterministic = false;
  const Ceilings* ceilings = nullptr;  // null: the machine's cached ones, else neutral ones
};

/// Lowers the graph for one binding. `consume` releases each constant's source tensor from `graph` once packed (weights
/// never live twice); otherwise the graph stays whole.
Plan make_plan(Graph& graph, const PlanOptions& options, ConstantStore& store, bool consume = false);

/// Floor of one step: executed FLOPs and special functions, bytes at the level that holds them .
Floor step_floor(const Problem& problem, const Cost& cost, const Ceilings& ceilings, int threads);

/// Checks that live slots never overlap and every place is in bounds; returns the faults.
std::vector<std::string> check_plan(const Plan& plan);

class CudaExecutor;

/// Runs a plan. Owns the arena; one executor runs one plan at a time; two executors run in two threads.
class Executor {
 public:
  explicit Executor(std::shared_ptr<const Plan> plan);
  Executor(Executor&&) noexcept;
  ~Executor();
  const Plan& plan() const { return *plan_; }
  /// Buffers of the caller, row-major, in the plan's order of inputs and outputs; nothing is copied or allocated.
  void run(const std::vector<const void*>& inputs, const std::vector<void*>& outputs);
  /// A run on buffers that stand, timed: on a CPU by the clock, on a GPU by the device, transfers to and from the host
  /// apart (`run` was called before).
  double timed_ns(const std::vector<const void*>& inputs, const std::vector<void*>& outputs);
  /// One time stamp a step: times[i] = ns of step i; wait[i] = ns idle at barriers in it. Sized by the caller.
  struct StepTime {
    int64_t start_ns, end_ns, wait_ns;
  };
  void run_profiled(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                    std::vector<StepTime>& times);
  /// Fills the arena with a signalling pattern: reads of what was never written show up as NaN.
  void poison();
  /// Copies of a step's outputs after a run, for the verifier (row-major).
  void run_observed(const std::vector<const void*>& inputs, const std::vector<void*>& outputs,
                    const std::function<void(int step, int output, const TensorView& value)>& observe);

 private:
  std::shared_ptr<const Plan> plan_;
  std::shared_ptr<void> arena_;
  std::vector<std::vector<void*>> step_inputs_, step_outputs_;
  std::vector<void*> workspaces_;
  std::vector<std::pair<void**, int>> input_fixups_, output_fixups_;  // pointers that change with the caller's buffers
  ThreadPool pool_;
  std::unique_ptr<CudaExecutor> cuda_;  // of a GPU's plan: all of the above is empty
  void bind(const std::vector<const void*>& inputs, const std::vector<void*>& outputs);
};

}  // namespace ridgeline
