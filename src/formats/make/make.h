// Synthetic models: architectures that everybody knows, as the usual exporters write them, with seeded weights. They
// stand in for trained files where none can be had: shapes, operators and the size of activations are real, the answers
// are not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ridgeline {

/// A number, or a symbol that is bound when the model is planned.
struct MakeDim {
  int64_t value = 0;
  std::string symbol;  // not empty: symbolic

  bool is_symbolic() const { return !symbol.empty(); }
};

struct MakeOptions {
  MakeDim batch{1, {}};
  MakeDim seq{};  // value 0: the model's default (bert 128, decoder 64); models of images have none
  uint64_t seed = 0;
  int opset = 17;  // 13 to 21; what an opset lacks (LayerNormalization, HardSwish) is spelled out as exporters did
};

struct MakeEntry {
  std::string_view name;
  std::string_view what;
};

/// Names for make_model, with a line about each.
const std::vector<MakeEntry>& make_entries();

/// "0" or a name give a symbol (`symbol` for 0), a positive number a fixed extent; else Error{kUsage}.
MakeDim parse_make_dim(std::string_view text, std::string_view symbol);

/// Writes the model `name` as an ONNX file. Weights are made while they are written: memory stays small.
/// Throws Error{kUsage} for an unknown name, Error{kResource} if the file cannot be written.
void make_model(std::string_view name, const MakeOptions& options, const std::string& path);

}  // namespace ridgeline
