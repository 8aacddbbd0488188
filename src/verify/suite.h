// ONNX backend-test folders: model.onnx, test_data_set_N/{input,output}_I.pb, and perhaps expect.json with a tolerance.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

struct SuiteCase {
  std::string name;
  std::string reason;  // empty where it passed
};

struct SuiteResult {
  int cases = 0;
  std::vector<std::string> passed;
  std::vector<SuiteCase> wrong, refused;
  std::vector<std::string> random;  // outputs are random: compared by type and shape
};

/// Runs an imported model on inputs in the graph's order.
using SuiteRunner = std::function<std::vector<Tensor>(Graph graph, const std::vector<Tensor>& inputs)>;

struct SuiteOptions {
  std::string filter = "*";  // of folder names, as a shell's pattern
  SuiteRunner run;
};

/// All folders below `folder` that hold a model.onnx, in order of their names. Throws Error{kUsage} if there is none.
SuiteResult run_suite(const std::string& folder, const SuiteOptions& options);

}  // namespace ridgeline
