// Views: movement operators that are only another way to walk the same buffer.
#pragma once

#include <optional>

#include "ir/problem.h"

namespace ridgeline {

/// Layout of the operator's output over the input's buffer, with the offset in elements of its first element; nullopt
/// if the operator is no view or the strides cannot express it. `output` is which of a Split's outputs.
struct View {
  Layout layout;
  int64_t offset = 0;
};
std::optional<View> view_of(const Problem& problem, int output = 0);

/// Could this operator be a view at all (for some input strides)?
bool may_be_view(const OpSchema& op);
/// Views of contiguous memory that cost nothing in any engine: Reshape, Flatten, Squeeze, Unsqueeze.
bool is_reshape(const OpSchema& op);

/// The new shape over the old strides, without a copy, if there is a way.
std::optional<Layout> reshape_layout(const Layout& from, const Extents& to);

}  // namespace ridgeline
