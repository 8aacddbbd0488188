// Saved plans: an optimized model with its packed weights in one file (.ridge), mapped at the next start, where
// planning finds every weight as its kernel wants it. Keyed by machine, build and model; what does not fit any more is
// said and built anew. docs/saved-plans.md.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "session/session.h"

namespace ridgeline {

/// What stands behind a Model that came from a saved plan.
struct SavedPlan {
  std::string path;
  std::string source;     // the model file that it was made from
  std::string stale;      // why it is built anew; empty: it fits
  bool optimized = true;  // the graph is the saved one; false: that of the model file, whose passes are to run again
  PipelineOptions pipeline;
  struct Packed {
    ConstantStore::Key key;
    Tensor tensor;
  };
  std::vector<Packed> packed;
  std::map<std::string, std::string> kernels;  // node -> kernel and tile of its step when it was saved
  std::vector<Decision> decisions;
};

/// Writes the model's optimized graph, planned anew by `options` (its bindings are filled in) for the weights that this
/// plan reads. Throws Error{kResource} if the file cannot be written.
/// `model_file`: what it was made from.
void save_plan(const std::string& path, const std::string& model_file, const Model& model, const Graph& optimized,
               const std::vector<Decision>& decisions, const CompileOptions& options);

/// A Model from a saved plan. Throws Error{kBadModel} for a broken file, and where a stale one cannot be built anew.
Model load_saved_plan(const std::string& path, const LoadOptions& options, std::vector<std::string>& notes);

/// What `compile` does with such a Model: no passes, the packed weights as they stand; a stale one is built anew and
/// its file written again, which `Compiled::notes` tells.
Compiled compile_saved(Model& model, const CompileOptions& options, ConstantStore& store);

}  // namespace ridgeline
