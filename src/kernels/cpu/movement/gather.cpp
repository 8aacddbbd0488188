// cpu.gather: rows of a table, chosen by indices along one axis.
#include <algorithm>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/elementwise/stream.h"
#include "kernels/cpu/movement/copy_tile.h"
#include "kernels/cpu/movement/move_kernels.h"

namespace ridgeline::cpu {

namespace {

struct State {
  int64_t outer = 1, extent = 0, inner = 1, count = 1;
  int bytes = 4;
  bool wide_index = true;  // i64, else i32
  bool stream = false;
};

size_t axis_of(const Problem& p) {
  const int64_t axis = p.integer("axis"), rank = p.input(0).layout.rank();
  return size_t(axis < 0 ? axis + rank : axis);
}

Support supports(const Problem& p) {
  if (info(p.input(0).dtype).bits < 8) return no("{} elements share bytes", name(p.input(0).dtype));
  if (!p.input(0).layout.is_row_major() || !p.input(1).layout.is_row_major() || !p.output().layout.is_row_major())
    return no("an operand is not row-major");
  if (p.has_epilogue()) return no("an epilogue on rows that are copied");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  // A row a few lines long costs its latency: about 20 ns.
  const int64_t rows = p.input(1).elements() * element_count(std::span(p.input(0).shape()).first(axis_of(p)));
  return c.stream_ns(p.output().bytes(), p.output().bytes(), p.threads) + 20.0 * double(rows) / p.threads + 200;
}

std::shared_ptr<const void> prepare(const Problem& p, const Tile&) {
  const Extents& shape = p.input(0).shape();
  const size_t axis = axis_of(p);
  return std::make_shared<State>(State{element_count(std::span(shape).first(axis)), shape[axis],
                                       element_count(std::span(shape).subspan(axis + 1)), p.input(1).elements(),
                                       info(p.input(0).dtype).bits / 8, p.input(1).dtype == DType::kI64,
                                       2 * p.output().bytes() >= stream_threshold_bytes()});
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const State& s = call.state_as<State>();
  const char* table = static_cast<const char*>(buffers.inputs[0]);
  char* y = static_cast<char*>(buffers.outputs[0]);
  auto index = [&](int64_t k) {
    const int64_t i = s.wide_index ? static_cast<const int64_t*>(buffers.inputs[1])[k]
                                   : static_cast<const int32_t*>(buffers.inputs[1])[k];
    return i < 0 ? i + s.extent : i;
  };
  if (s.outer * s.inner == 0) return;
  // What the indices are is the user's affair: all are looked at before anything is written.
  for (int64_t k = 0; k < s.count; ++k)
    if (index(k) < 0 || index(k) >= s.extent)
      fail(ErrorCode::kBadInput, "Gather: an index is out of range for an extent of {}: allowed are {} to {}", s.extent,
           -s.extent, s.extent - 1);
  const int64_t row = s.inner * s.bytes;
  parallel(pool, s.outer * s.count, std::max<int64_t>(1, (64 << 10) / row), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t o = r / s.count, k = r % s.count;
      copy_tile(s.bytes, table + (o * s.extent + index(k)) * row, 0, 1, y + r * row, 0, 1, 1, s.inner, s.stream);
    }
  });
}

}  // namespace

constinit const Kernel kGatherKernel = {
    .name = "cpu.gather", .op = "Gather", .supports = supports, .estimate = estimate, .prepare = prepare, .run = run};

}  // namespace ridgeline::cpu
