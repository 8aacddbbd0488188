// What the operators of com.microsoft share: they are spelled in the standard's operators and the library's own, and
// the pass expand_functions puts that spelling in their place, so that no kernel is written twice.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ops/common.h"

namespace ridgeline {

// What each file declares; for the catalogue.
std::span<const OpSchema* const> contributed_fused_ops();
std::span<const OpSchema* const> contributed_normalize_ops();
std::span<const OpSchema* const> contributed_quantized_ops();
std::span<const OpSchema* const> contributed_low_bit_ops();
std::span<const OpSchema* const> contributed_attention_ops();
std::span<const OpSchema* const> contributed_cache_ops();

namespace contributed {

constexpr InputSpec optional(std::string_view name, TypeSet types, std::string_view same_as = "") {
  return {name, types, same_as, true};
}

inline Attributes with(std::initializer_list<std::pair<std::string_view, AttributeValue>> items) {
  Attributes attributes;
  for (const auto& [name, value] : items) attributes.set(name, value);
  return attributes;
}

inline bool same(const Dim& a, const Dim& b) { return !a.known() || !b.known() || a == b; }

/// An extent as a tensor i64[1]: a constant where it is known.
V extent(Builder& b, V x, int axis);
/// 0, 1, ... below an extent given as i64[1]; i64.
V counted(Builder& b, V count);
/// Along the axis into parts of these sizes.
std::vector<V> split(Builder& b, V x, const std::vector<int64_t>& sizes, int64_t axis);
/// The operator's own attributes of these names, where the node has them, for a node of the decomposition.
void copy_integers(const Builder& b, std::initializer_list<std::string_view> names, Attributes& to);

/// SkipLayerNormalization and SkipSimplifiedLayerNormalization, which ops/normalize.cpp declares.
void decompose_skip_layer_norm(Builder& b);
void decompose_skip_rms_norm(Builder& b);

/// FLOPs of the decomposition's operators, bytes of the operator's own operands.
Cost decomposed_cost(const Problem& problem);

/// Can `from` be broadcast to `onto`, whose shape stays? Extents that are not known yet are taken to fit: they are
/// checked again when they are bound.
bool broadcasts_onto(const Shape& from, const Shape& onto);

/// No rank but this one.
void require_rank(const Infer& i, int input, int rank, std::string_view what);

}  // namespace contributed

}  // namespace ridgeline
