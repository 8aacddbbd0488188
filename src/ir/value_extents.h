// The extents of a value once its symbols are bound, for callers that have to say whose they are.
#pragma once

#include "ir/graph.h"

namespace ridgeline {

/// Throws Error{kBadInput} that names the value if an extent is negative or the whole larger than a tensor may be.
inline Extents extents_of(const Value& value, const Bindings& bindings) {
  Extents shape = evaluate(value.shape(), bindings);
  try {
    element_count(shape);
  } catch (const Error& error) {
    fail(ErrorCode::kBadInput, "'{}': {}", value.name, error.what());
  }
  return shape;
}

}  // namespace ridgeline
