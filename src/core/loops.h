// Loop nests over strided operands of one shape: axes ordered by how one of them lies in memory, neighbours merged, so
// that most problems become one or two loops.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ridgeline/tensor.h"

namespace ridgeline {

/// `extents` outermost first; strides[k] are operand k's, in elements. At least one axis.
struct Loops {
  std::vector<int64_t> extents;
  std::vector<std::vector<int64_t>> strides;

  int axes() const { return int(extents.size()); }
  int64_t elements() const;
};

/// `operands` broadcast to `shape` (trailing axes aligned, extents of 1 repeat). The order of axes follows the strides
/// of operand `lead` (an output), largest outermost.
Loops make_loops(const Extents& shape, std::span<const Layout* const> operands, int lead);

}  // namespace ridgeline
