// LoadedModel: an ONNX file read, checked, and bound to extents; written back by save.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ridgeline/tensor.h"

namespace ridgeline {

/// An input or output of a model with the extents that the binding gives it.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kNone;
  Extents shape;
};

struct ModelOptions {
  std::map<std::string, int64_t> dims;   // extents of named dimensions; those that nothing gives are 1
  std::map<std::string, Tensor> inputs;  // by name: their shapes bind dimensions. An input on whose *content* shapes
                                         // depend must be given; it becomes part of the model
  uint64_t seed = 0;                     // inputs that are not given get seeded values (measuring, verifying)
};

/// A value: copies share the weights.
class LoadedModel {
 public:
  /// An ONNX file, or a saved plan (.ridge). Throws Error: kBadModel for a file that is broken, kUnsupported that lists
  /// all operators we do not have, kBadInput or kUsage for inputs or dimensions that do not fit.
  static LoadedModel load(const std::string& path, const ModelOptions& options = {});

  std::vector<TensorInfo> inputs() const;
  std::map<std::string, int> operators() const;  // live nodes by operator
  int64_t parameters() const;                    // elements of all float constants
  /// The inputs that were given or made.
  const std::map<std::string, Tensor>& feeds() const;
  /// The outputs by the naive reference, which accumulates in double: slow, the control.
  std::vector<Tensor> reference(int threads = 0) const;
  /// Writes the model as ONNX. Throws Error{kResource} if the file cannot be written.
  void save(const std::string& path) const;

  struct State;  // the library's own
  explicit LoadedModel(std::shared_ptr<State> state) : state_(std::move(state)) {}
  State& state() const { return *state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace ridgeline
