// plan: everything hard decided for one binding of extents: kernels, layouts, packed weights, memory.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/context.h"
#include "ridgeline/optimize.h"

namespace ridgeline {

struct PlanningOptions {
  std::map<std::string, int64_t> dims;         // other extents than the model was loaded with
  std::map<std::string, std::string> kernels;  // node name -> kernel that must be taken
  bool reference_only = false;                 // the control: every step by its reference
  /// A second plan of a model keeps to kernels whose weights stand packed, so that it costs milliseconds. Set this to
  /// let every kernel compete again: ResNet-50 packed 31 to 57 MB more for some batches, in 170 to 390 ms.
  bool repack = false;
  /// Outputs are the same to the bit for any number of threads and whatever the machine's measured ceilings are. Costs
  /// some speed (docs/scheduling.md) and uses at most 8 threads.
  bool deterministic = false;
};

struct PlannedStep {
  std::string name;                 // the node's
  std::vector<std::string> origin;  // nodes of the model that it stands for
  std::string kernel;
  std::string problem;               // as `ridgeline bench` reads it
  std::vector<std::string> refused;  // "kernel: reason" of those that could not run it
  int64_t flops = 0, bytes = 0;
  double predicted_us = 0, floor_us = 0;
  std::string bound;  // compute, memory, launch, latency
};

/// Immutable; copies share it. Runs of it share packed weights with all plans of the same OptimizedModel.
class PlannedModel {
 public:
  std::vector<TensorInfo> inputs() const, outputs() const;  // row-major
  std::vector<PlannedStep> steps() const;
  int64_t peak_bytes() const;      // packed weights, arena, inputs and outputs
  int64_t constant_bytes() const;  // packed weights
  int64_t arena_bytes() const;     // what one Run allocates
  std::string text() const;        // steps and slots, one a line

  struct State;  // the library's own
  explicit PlannedModel(std::shared_ptr<State> state) : state_(std::move(state)) {}
  State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

/// Planned with the context's threads and ceilings; kept with the model (at most 16 bindings), so that asking again
/// costs a look-up. Throws Error: kUsage for a dimension or kernel that there is not, kUnsupported if no kernel runs a
/// node.
PlannedModel plan(const OptimizedModel& model, const PlanningOptions& options = {},
                  const Context& context = thread_context());

}  // namespace ridgeline
