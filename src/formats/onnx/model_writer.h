// Writes a model's bytes: the message without its weights, then each weight from its own memory.
#pragma once

#include <string>
#include <vector>

#include "onnx.pb.h"
#include "ridgeline/tensor.h"

namespace ridgeline {

struct Weight {
  std::string name;
  Tensor tensor;
};

/// `model` has no initializers yet. `external`: weights of 1 KiB and more go to "<path>.data".
void write_model(const onnx::ModelProto& model, const std::vector<Weight>& weights, bool external,
                 const std::string& path);

}  // namespace ridgeline
