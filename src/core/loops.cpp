#include "core/loops.h"

#include <algorithm>

namespace ridgeline {

int64_t Loops::elements() const {
  int64_t n = 1;
  for (int64_t e : extents) n *= e;
  return n;
}

Loops make_loops(const Extents& shape, std::span<const Layout* const> operands, int lead) {
  const int rank = int(shape.size());
  std::vector<std::vector<int64_t>> strides(operands.size(), std::vector<int64_t>(size_t(rank), 0));
  for (size_t k = 0; k < operands.size(); ++k) {
    const Layout& layout = *operands[k];
    const int missing = rank - layout.rank();
    for (int a = 0; a < layout.rank(); ++a)
      if (layout.shape[size_t(a)] != 1) strides[k][size_t(a + missing)] = layout.strides[size_t(a)];
  }
  std::vector<int> order;
  for (int a = 0; a < rank; ++a)
    if (shape[size_t(a)] != 1) order.push_back(a);
  std::stable_sort(order.begin(), order.end(),
                   [&](int x, int y) { return strides[size_t(lead)][size_t(x)] > strides[size_t(lead)][size_t(y)]; });

  Loops nest;
  nest.strides.resize(operands.size());
  for (int a : order) {
    const int64_t extent = shape[size_t(a)];
    bool merges = !nest.extents.empty();
    for (size_t k = 0; merges && k < operands.size(); ++k)
      merges = nest.strides[k].back() == strides[k][size_t(a)] * extent;
    if (merges) {
      nest.extents.back() *= extent;
    } else {
      nest.extents.push_back(extent);
    }
    for (size_t k = 0; k < operands.size(); ++k) {
      if (merges)
        nest.strides[k].back() = strides[k][size_t(a)];
      else
        nest.strides[k].push_back(strides[k][size_t(a)]);
    }
  }
  if (nest.extents.empty()) {
    nest.extents.push_back(1);
    for (auto& s : nest.strides) s.push_back(1);
  }
  return nest;
}

}  // namespace ridgeline
