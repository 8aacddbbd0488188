// What movement operators share.
#pragma once

#include "ops/catalogue.h"
#include "ops/common.h"

namespace ridgeline {

inline constexpr auto kMovement = OpKind::kMovement;

/// No arithmetic: every input is read once, the output is written once.
Cost cost_of_copy(const Problem& problem);
/// Only what is selected is read.
Cost cost_of_selection(const Problem& problem);

/// output 0 [k] = input 0 [k]: for operators that only change the shape.
void reference_flat_copy(Reference& r);

/// If input 0 has known content and output 0 has rank 0 or 1, it passes through.
void pass_values(Infer& i);

/// Gradient of an operator that selects elements of input 0, some perhaps twice: the operator applied to the elements'
/// numbers says where each gradient belongs. Correct for every such operator; those with a direct inverse do not use
/// it.
void gradient_by_selection(Gradient& g, std::string_view op_name, Attributes attributes = {});
/// reshape(gradient, shape of input 0).
void gradient_reshape_back(Gradient& g);
/// A tensor of zeros like v.
V zeros_like(Builder& b, V v);

constexpr InputSpec optional_input(std::string_view name, TypeSet types = kAll, std::string_view same_as = "") {
  InputSpec spec{name, types, same_as};
  spec.optional = true;
  return spec;
}
constexpr OutputSpec optional_output(std::string_view name) { return {name, true}; }

}  // namespace ridgeline
