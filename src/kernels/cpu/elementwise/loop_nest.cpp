#include "kernels/cpu/elementwise/loop_nest.h"

#include <algorithm>
#include <cassert>

namespace ridgeline::cpu {

namespace {
constexpr int kMostOperands = 32;
}

LoopNest make_loop_nest(const Extents& shape, std::span<const Layout* const> operands, int lead) {
  assert(int(operands.size()) <= kMostOperands);
  return {make_loops(shape, operands, lead)};
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
