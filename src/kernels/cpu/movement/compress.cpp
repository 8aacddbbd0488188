// cpu.compress: the rows that a condition keeps, copied one after the other.
#include <algorithm>
#include <cstring>

#include "kernels/cpu/elementwise/loop_nest.h"
#include "kernels/cpu/movement/select_kernels.h"

namespace ridgeline::cpu {

namespace {

/// Rows of `inner` bytes, `extent` of them in each of `outer` parts.
struct Rows {
  int64_t outer, extent, inner;
};

Rows rows_of(const Problem& p) {
  const Extents& shape = p.input(0).shape();
  const int64_t bytes = info(p.input(0).dtype).bits / 8;
  if (!p.attributes.has("axis")) return {1, p.input(0).elements(), bytes};
  const int64_t given = p.integer("axis");
  const size_t axis = size_t(given < 0 ? given + int64_t(shape.size()) : given);
  return {element_count(std::span(shape).first(axis)), shape[axis],
          element_count(std::span(shape).subspan(axis + 1)) * bytes};
}

Support supports(const Problem& p) {
  if (info(p.input(0).dtype).bits < 8) return no("{} elements share bytes", name(p.input(0).dtype));
  if (!p.input(0).layout.is_row_major() || !p.input(1).layout.is_row_major() || !p.output().layout.is_row_major())
    return no("an operand is not row-major");
  if (p.has_epilogue()) return no("an epilogue on rows that are copied");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const Rows rows = rows_of(p);
  const double kept = double(p.output().bytes()) / double(std::max<int64_t>(1, rows.inner));
  return c.stream_ns(p.output().bytes() + p.input(1).bytes(), p.output().bytes(), p.threads) + 2.0 * kept / p.threads +
         double(p.input(1).elements()) + 200;
}

/// The kept positions.
int64_t workspace(const Problem& p, const Tile&) { return p.input(1).elements() * int64_t(sizeof(int64_t)); }

template <int64_t kBytes>
void copy_elements_of(const char* x, const int64_t* positions, int64_t count, char* y) {
  for (int64_t k = 0; k < count; ++k) std::memcpy(y + k * kBytes, x + positions[k] * kBytes, kBytes);
}

void copy_rows(const char* x, const int64_t* positions, int64_t count, int64_t bytes, char* y) {
  if (bytes == 1) return copy_elements_of<1>(x, positions, count, y);
  if (bytes == 2) return copy_elements_of<2>(x, positions, count, y);
  if (bytes == 4) return copy_elements_of<4>(x, positions, count, y);
  if (bytes == 8) return copy_elements_of<8>(x, positions, count, y);
  for (int64_t k = 0; k < count; ++k) std::memcpy(y + k * bytes, x + positions[k] * bytes, size_t(bytes));
}

void run(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Problem& p = call.problem;
  const Rows rows = rows_of(p);
  const char* x = static_cast<const char*>(buffers.inputs[0]);
  const uint8_t* condition = static_cast<const uint8_t*>(buffers.inputs[1]);
  char* y = static_cast<char*>(buffers.outputs[0]);
  int64_t* positions = static_cast<int64_t*>(buffers.workspace);
  const int64_t given = p.input(1).elements(), bytes = rows.outer * rows.inner;
  int64_t count = 0;
  for (int64_t k = 0; k < given; ++k) {  // without a branch: conditions are seldom predictable
    positions[count] = k;
    count += condition[k] != 0;
  }
  // The plan was made for a number of rows; what the condition says now is the user's affair.
  if ((count > 0 && positions[count - 1] >= rows.extent) || count * bytes != p.output().bytes())
    fail(ErrorCode::kBadInput,
         "Compress: 'condition' keeps {} of {} positions, which do not make the {} bytes planned for", count,
         rows.extent, p.output().bytes());
  if (count * bytes == 0) return;
  parallel(pool, rows.outer * count, std::max<int64_t>(1, (64 << 10) / rows.inner),
           [&](int64_t begin, int64_t end, int) {
             while (begin < end) {
               const int64_t part = begin / count, first = begin % count, n = std::min(count - first, end - begin);
               copy_rows(x + part * rows.extent * rows.inner, positions + first, n, rows.inner, y + begin * rows.inner);
               begin += n;
             }
           });
}

}  // namespace

constinit const Kernel kCompressKernel = {.name = "cpu.compress",
                                          .op = "Compress",
                                          .supports = supports,
                                          .estimate = estimate,
                                          .workspace = workspace,
                                          .run = run};

}  // namespace ridgeline::cpu
