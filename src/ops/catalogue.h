// The catalogue: every operator, by name. To add one: declare its schema in its family's file, list it here and in
// catalogue.cpp.
#pragma once

#include <span>

#include "ir/op_schema.h"

namespace ridgeline {

/// Every schema, grouped by family.
std::span<const OpSchema* const> catalogue();

}  // namespace ridgeline
