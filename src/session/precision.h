// The lowest precision of each product that keeps a model's end-to-end error inside a limit, on calibration inputs.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "session/session.h"

namespace ridgeline {

struct PrecisionLayer {
  std::string root;                // what a pass knows it by
  std::vector<std::string> nodes;  // names of the imported nodes
  std::string precision = "f32";   // what it got: int8, bf16 or f32
  double int8_error = -1;          // end to end, with this layer alone lowered; -1: not possible, or not tried
  double bf16_error = -1;
  double f32_ns = 0, bf16_ns = 0, int8_ns = 0;  // predicted time of its step
};

/// How a model is to be lowered: a file of its own, bound to the model by its hash.
struct PrecisionPlan {
  std::string model_sha256;
  std::string calibration;             // in words: "noise, 3 sets", "given inputs", a folder
  double max_error = 0;                // the limit
  double error = 0;                    // reached: largest |y - f32| over largest |f32|, over all outputs and sets
  std::vector<PrecisionLayer> layers;  // by rising error alone

  int count(std::string_view precision) const;
  std::string to_json() const;
  /// Throws Error{kBadInput} that says what is missing.
  static PrecisionPlan from_json(std::string_view text, const std::string& file);
};

/// Makes the pipeline lower what the plan says, and nothing else.
void apply_precision(const PrecisionPlan& plan, PipelineOptions& pipeline);

/// Throws Error{kBadInput} if something that the plan lowers was not.
void require_lowered(const PrecisionPlan& plan, const Decisions& decisions, const std::string& file);

struct PrecisionSearch {
  double max_error = 0.01;
  bool int8 = true, bf16 = true;  // tried in this order
  CompileOptions compile;
  std::function<void(const std::string&)> progress;
};

/// Each product alone, then the precisions of the least predicted time that together stay inside. `sets`: calibration
/// inputs, at least one. The error is compared with the f32 plan's outputs: they must be finite and not all zero, and
/// what is no float must stay the same.
PrecisionPlan search_precision(Model& model, const std::vector<Feeds>& sets, const PrecisionSearch& options);

}  // namespace ridgeline
