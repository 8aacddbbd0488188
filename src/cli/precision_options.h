// --precision, --max-error, --calibrate and --scales of the commands that take a model.
#pragma once

#include <optional>
#include <string>

#include "cli/common.h"
#include "session/precision.h"

namespace ridgeline::cli {

/// --precision f32|f16|bf16|int8, checked.
void add_precision(CLI::App* command, std::string& precision);

struct PrecisionArguments {
  double max_error = 0;
  std::string calibrate;  // "noise", or a folder
  std::string scales;     // a file to write the result of --max-error to, or to read it from
  void add_to(CLI::App* command);
  bool asked() const { return max_error != 0 || !scales.empty(); }
};

/// With --max-error: searches, and writes --scales. With --scales alone: reads it, and refuses it if it was made for
/// another model. Neither: nothing. `inputs_given`: the feeds are the user's, so they may calibrate.
std::optional<PrecisionPlan> precision_plan(const Common& common, const PrecisionArguments& arguments,
                                            const ModelArguments& model_arguments, Model& model,
                                            const CompileOptions& compile);

/// The same for a command that compiles once, with what it finds put into `compile`; --precision and a choice of passes
/// are refused beside it.
std::optional<PrecisionPlan> searched_precision(const Common& common, const PrecisionArguments& arguments,
                                                const ModelArguments& model_arguments, Model& model,
                                                const std::string& precision, CompileOptions& compile);

/// The layers with what each alone costs, those left in f32 named.
std::string precision_text(const PrecisionPlan& plan);
Json precision_json(const PrecisionPlan& plan);

}  // namespace ridgeline::cli
