// The catalogue as JSON, table, page and Markdown: all of it read from the declarations.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "ir/op_schema.h"

namespace ridgeline {

/// Every field of a declaration; functions by whether they are there.
nlohmann::ordered_json op_json(const OpSchema& op);
std::string op_table();
std::string op_markdown();
/// Interface, shapes, tiling, scheduling, kernels, in this order.
std::string op_page(const OpSchema& op);

}  // namespace ridgeline
