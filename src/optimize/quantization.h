// What the passes over quantized graphs share: scales and zero points as numbers, and quantization as Programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace ridgeline {

/// The constants of a QuantizeLinear or DequantizeLinear: one scale, or one a slice of `axis`.
struct Scaling {
  DType type = DType::kNone;  // the 8-bit type
  std::vector<float> scale;   // positive, finite, far from the ends of the range
  std::vector<int32_t> zero;  // as many
  int axis = -1;              // -1: one scale for all
  bool single() const { return axis < 0; }
  bool operator==(const Scaling&) const = default;
};
/// nullopt, and why, where there are other scales than constants in f32, blocks, or another type than 8 bits.
std::optional<Scaling> scaling_of(const Graph& graph, const Node& node, std::string& why);

bool is_quantize(const Node& node);
bool is_dequantize(const Node& node);

/// saturate(round half to even(x / scale) + zero), as a Program of f32; (q - zero) * scale, as one of the 8-bit type.
/// `more` gets the tensors of further operands, to broadcast against x of this rank.
Program quantize_program(const Scaling& scaling, int rank, std::vector<Tensor>& more);
Program dequantize_program(const Scaling& scaling, int rank, std::vector<Tensor>& more);

/// One number for each slice of `axis`, in a tensor that broadcasts against `rank` axes.
Tensor along_axis(const std::vector<float>& numbers, int axis, int rank);

}  // namespace ridgeline
