#include "kernels/cpu/elementwise/loop_nest.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace ridgeline::cpu {

namespace {
constexpr int kMostOperands = 32;
}

int64_t LoopNest::elements() const {
  int64_t n = 1;
  for (int64_t e : extents) n *= e;
  return n;
}

LoopNest make_loop_nest(const Extents& shape, std::span<const Layout* const> operands, int lead) {
  const int rank = int(shape.size());
  assert(int(operands.size()) <= kMostOperands);
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

  LoopNest nest;
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

void LoopNest::run_tiles(const ThreadPool& pool, int64_t grain, const TileBody& body, int64_t multiple) const {
  const int64_t total = elements();
  if (total == 0) return;
  const size_t operands = strides.size();
  const int64_t columns = cols();
  if (axes() == 1) {
    // One long row: ranges of whole cache lines (of one-byte elements too), and of whole blocks.
    parallel(pool, columns, std::max<int64_t>(grain, multiple) / multiple * multiple,
             [&](int64_t begin, int64_t end, int) {
               std::array<int64_t, kMostOperands> offsets;
               for (size_t k = 0; k < operands; ++k) offsets[k] = begin * strides[k][0];
               body(offsets.data(), 1, end - begin);
             });
    return;
  }
  const int64_t per_outer = rows(), all_rows = total / columns;
  parallel(pool, all_rows, std::max<int64_t>(1, grain / columns), [&](int64_t begin, int64_t end, int) {
    while (begin < end) {
      int64_t outer = begin / per_outer;
      const int64_t row = begin % per_outer, count = std::min(per_outer - row, end - begin);
      std::array<int64_t, kMostOperands> offsets;
      for (size_t k = 0; k < operands; ++k) offsets[k] = row * row_stride(int(k));
      for (int a = axes() - 3; a >= 0; --a) {
        const int64_t at = outer % extents[size_t(a)];
        outer /= extents[size_t(a)];
        for (size_t k = 0; k < operands; ++k) offsets[k] += at * strides[k][size_t(a)];
      }
      body(offsets.data(), count, columns);
      begin += count;
    }
  });
}

}  // namespace ridgeline::cpu
