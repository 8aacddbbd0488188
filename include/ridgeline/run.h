// Run: a plan with its memory, run as often as one likes.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/plan.h"

namespace ridgeline {

/// Owns the arena, all the memory that a run needs. One thread at a time uses a Run; two of one plan run in two
/// threads.
class Run {
 public:
  explicit Run(const PlannedModel& plan);
  Run(Run&&) noexcept;
  Run& operator=(Run&&) noexcept;
  ~Run();

  /// On the caller's row-major buffers, in the order of the plan's inputs and outputs. Allocates and copies nothing.
  void operator()(const std::vector<const void*>& inputs, const std::vector<void*>& outputs);
  /// By name, into new tensors. Throws Error{kBadInput} if one is missing or of another dtype or shape.
  std::map<std::string, Tensor> operator()(const std::map<std::string, Tensor>& inputs);

  struct State;
  State& state() const { return *state_; }

 private:
  std::unique_ptr<State> state_;
};

}  // namespace ridgeline
