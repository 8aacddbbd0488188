// cpu.trilu: a triangle of each matrix. A row is one piece that is copied and one that is zero.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/movement/move_kernels.h"

namespace ridgeline::cpu {

namespace {

Support supports(const Problem& p) {
  if (info(p.input(0).dtype).bits < 8) return no("{} elements share bytes", name(p.input(0).dtype));
  if (!p.input(0).layout.is_row_major() || !p.output().layout.is_row_major()) return no("an operand is not row-major");
  if (p.has_epilogue()) return no("an epilogue on rows that are copied");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const double rows = double(p.output().elements()) / double(std::max<int64_t>(1, p.output().shape().back()));
  return c.stream_ns(p.output().bytes() / 2, p.output().bytes(), p.threads) + 5 * rows / p.threads + 100;
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Problem& p = call.problem;
  const Extents& shape = p.output().shape();
  const int64_t rows = shape[shape.size() - 2], cols = shape.back(), bytes = info(p.output().dtype).bits / 8;
  if (p.output().elements() == 0) return;
  const int64_t k = p.has(1) ? *static_cast<const int64_t*>(buffers.inputs[1]) : 0;
  const bool upper = p.flag("upper");
  const char* x = static_cast<const char*>(buffers.inputs[0]);
  char* y = static_cast<char*>(buffers.outputs[0]);
  const int64_t grain = std::max<int64_t>(1, (64 << 10) / (cols * bytes));
  parallel(pool, p.output().elements() / cols, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      // The first column at or above the diagonal: there the upper triangle begins; the lower one ends one later.
      const int64_t from = std::clamp<int64_t>(std::clamp(k, -rows, cols) + r % rows + (upper ? 0 : 1), 0, cols);
      const int64_t head = from * bytes, tail = (cols - from) * bytes;
      char* row = y + r * cols * bytes;
      const char* source = x + r * cols * bytes;
      if (upper) {
        std::memset(row, 0, size_t(head));
        std::memcpy(row + head, source + head, size_t(tail));
      } else {
        std::memcpy(row, source, size_t(head));
        std::memset(row + head, 0, size_t(tail));
      }
    }
  });
}

}  // namespace

constinit const Kernel kTriluKernel = {
    .name = "cpu.trilu", .op = "Trilu", .supports = supports, .estimate = estimate, .run = run};

}  // namespace ridgeline::cpu
