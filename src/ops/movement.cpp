#include "ops/movement.h"

#include <algorithm>

namespace ridgeline {

Cost cost_of_copy(const Problem& problem) {
  return {.read_bytes = problem.read_bytes(), .write_bytes = problem.write_bytes()};
}

Cost cost_of_selection(const Problem& problem) {
  const int64_t source = problem.input(0).bytes(), selected = problem.output().bytes();
  return {.read_bytes = problem.read_bytes() - source + std::min(source, selected),
          .write_bytes = problem.write_bytes()};
}

void reference_flat_copy(Reference& r) {
  for (int64_t k = 0; k < r.out[0].elements(); ++k) r.out[0].copy(k, r.in[0], k);
}

void pass_values(Infer& i) {
  const auto values = i.values(0);
  if (values && i.results()[0].shape && i.results()[0].shape->size() <= 1) i.output_values(0, *values);
}

V zeros_like(Builder& b, V v) { return b.cast(b.op("ConstantOfShape", {b.op("Shape", {v})}), b.dtype(v)); }

void gradient_by_selection(Gradient& g, std::string_view op_name, Attributes attributes) {
  V x = g.input(0), shape = g.op("Shape", {x}), count = g.op("Size", {x});
  V zero = g.reshape(g.integers_constant({0}), {}), one = g.reshape(g.integers_constant({1}), {});
  std::vector<V> inputs = {g.op("Reshape", {g.op("Range", {zero, count, one}), shape})};
  for (int k = 1; k < g.inputs(); ++k) inputs.push_back(g.has(k) ? g.input(k) : V{});
  V where = g.reshape(g.op(op_name, inputs, std::move(attributes)), {-1});
  Attributes add;
  add.set("axis", int64_t(0));
  add.set("reduction", std::string("add"));
  V flat = g.op("ScatterElements", {g.reshape(zeros_like(g, x), {-1}), where, g.reshape(g.gradient(), {-1})},
                std::move(add));
  g.input_gradient(0, g.op("Reshape", {flat, shape}));
}

void gradient_reshape_back(Gradient& g) {
  g.input_gradient(0, g.op("Reshape", {g.gradient(), g.op("Shape", {g.input(0)})}));
}

}  // namespace ridgeline
