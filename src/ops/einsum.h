// The equation of an Einsum, read once for all who need it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridgeline {

/// Labels of each operand's axes and of the result's. A label is a letter, or 256 + k for the k-th axis of the ellipsis
/// counted from its end, so that ellipses of different lengths broadcast.
struct EinsumTerms {
  std::vector<std::vector<int>> inputs;
  std::vector<int> output;
  std::string fault;  // what is wrong with it; empty: nothing
};
EinsumTerms parse_einsum(std::string_view equation, const std::vector<int>& ranks);

}  // namespace ridgeline
