#include "ops/common.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridgeline {

AxisSpan span_of(const Extents& shape, int axis) {
  AxisSpan span;
  for (int a = 0; a < int(shape.size()); ++a)
    (a < axis ? span.outer : a == axis ? span.extent : span.inner) *= shape[size_t(a)];
  return span;
}

std::vector<int> positive_axes(const std::vector<int64_t>& axes, int rank) {
  std::vector<int> result;
  for (int64_t axis : axes) result.push_back(positive_axis(axis, rank));
  return result;
}

std::vector<int64_t> integers_of(const RefArray& array) {
  std::vector<int64_t> result;
  for (int64_t k = 0; k < array.elements(); ++k) result.push_back(array.integer(k));
  return result;
}

std::vector<int64_t> integers_of(const Reference& r, int input, std::vector<int64_t> fallback) {
  return r.has(input) ? integers_of(r.in[size_t(input)]) : std::move(fallback);
}

std::string describe(const Infer& i, int input) {
  return fmt::format("{}{}", name(i.dtype(input)), text(i.shape(input)));
}

}  // namespace ridgeline
