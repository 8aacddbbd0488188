// Lists of families that only the catalogue reads. Those in catalogue.h are seen by every file that declares operators,
// and one more line there compiles all of them again.
#pragma once

#include <span>

#include "ir/op_schema.h"

namespace ridgeline {

std::span<const OpSchema* const> conv_columns_ops();
std::span<const OpSchema* const> einsum_ops();
std::span<const OpSchema* const> linear_attention_ops();
std::span<const OpSchema* const> movement_sample_ops();
std::span<const OpSchema* const> movement_select_ops();
std::span<const OpSchema* const> ngram_ops();
std::span<const OpSchema* const> pool_regions_ops();
std::span<const OpSchema* const> random_ops();
std::span<const OpSchema* const> reduce_products_ops();
std::span<const OpSchema* const> selection_ops();
std::span<const OpSchema* const> signal_ops();

}  // namespace ridgeline
