// optimize: the passes on a model, once for all extents; every rewrite is told, taken or refused.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridgeline/model.h"

namespace ridgeline {

struct OptimizeOptions {
  std::string passes = "all";         // all, none, or names separated by commas (`ridgeline passes` lists them)
  std::vector<std::string> disabled;  // passes switched off by name
};

/// What a pass did or refused to do.
struct Rewrite {
  std::string pass;
  std::vector<std::string> nodes;  // by their names in the model
  bool applied = false;
  std::string reason_code;  // of a refusal: other_user, graph_output, training_mode, ...
  std::string reason;       // in words, with what would make it legal
  int64_t bytes_saved = 0;
  int launches_saved = 0;
};

/// A value: copies share weights, and the packed weights of all plans made of it.
class OptimizedModel {
 public:
  const std::vector<Rewrite>& rewrites() const;
  std::string text() const;  // one line a node
  /// As ONNX: Programs and fused operators are written as the standard operators that they mean. A name that ends in
  /// .ridge: with its packed weights, as a saved plan that LoadedModel::load maps.
  void save(const std::string& path) const;

  struct State;  // the library's own
  explicit OptimizedModel(std::shared_ptr<State> state) : state_(std::move(state)) {}
  State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

/// Throws Error{kUsage} for a pass that there is not. The loaded model stays as it is.
OptimizedModel optimize(const LoadedModel& model, const OptimizeOptions& options = {});

}  // namespace ridgeline
