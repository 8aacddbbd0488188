// What a file holds, without running or packing anything.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "formats/onnx/import.h"

namespace ridgeline {

struct InspectedTensor {
  std::string name;
  DType dtype = DType::kNone;
  bool ranked = false;
  Shape shape;
};

struct Inspection {
  std::map<std::string, int> operators;
  int nodes = 0;
  int64_t parameters = 0;
  int64_t flops = 0, bytes = 0;  // of each operator alone, open symbols at 1 unless bound
  bool complete = true;          // every node's shape is known
  std::string incomplete_reason;
  std::vector<InspectedTensor> inputs, outputs;
  std::vector<UnsupportedOperator> unsupported;
  std::vector<std::string> notes;
};

/// Throws Error for a file that cannot be read; unsupported operators are listed instead.
Inspection inspect_model(const std::string& path, const Bindings& dims, const std::string& external_root = "");

}  // namespace ridgeline
