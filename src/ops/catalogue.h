// The catalogue: every operator. To add one, declare its schema in its family's file and in the list at the end of that
// file: nothing else has to be touched. A new file of a family is listed here and in catalogue.cpp.
#pragma once

#include <span>

#include "ir/op_schema.h"

namespace ridgeline {

/// Every schema, grouped by family; the fused-program operator "Elementwise" first.
std::span<const OpSchema* const> catalogue();

/// The first schema of that name in any domain, the standard's first; nullptr if there is none. For command lines.
const OpSchema* find_op_in_any_domain(std::string_view name);

// What each file of a family declares, in the order of its own list.
std::span<const OpSchema* const> elementwise_ops();
std::span<const OpSchema* const> elementwise_logic_ops();
std::span<const OpSchema* const> movement_view_ops();
std::span<const OpSchema* const> movement_slice_ops();
std::span<const OpSchema* const> movement_make_ops();
std::span<const OpSchema* const> movement_blocks_ops();
std::span<const OpSchema* const> movement_gather_ops();
std::span<const OpSchema* const> movement_resize_ops();
std::span<const OpSchema* const> reduce_ops();
std::span<const OpSchema* const> softmax_ops();
std::span<const OpSchema* const> normalize_ops();
std::span<const OpSchema* const> normalize_channels_ops();
std::span<const OpSchema* const> matmul_ops();
std::span<const OpSchema* const> low_bit_ops();
std::span<const OpSchema* const> conv_ops();
std::span<const OpSchema* const> pool_ops();
std::span<const OpSchema* const> attention_ops();
std::span<const OpSchema* const> attention_standard_ops();
std::span<const OpSchema* const> rotary_ops();
std::span<const OpSchema* const> quantize_ops();
std::span<const OpSchema* const> loss_ops();
std::span<const OpSchema* const> control_ops();

}  // namespace ridgeline
