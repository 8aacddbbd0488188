#include "kernels/cpu/matmul/blocking.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "core/integer.h"
#include "kernels/cpu/matmul/micro.h"

namespace ridgeline::cpu {
namespace {

int64_t l2_bytes() {
  static const int64_t bytes = [] {
    const long value = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return std::clamp<int64_t>(value > 0 ? value : 1 << 20, 256 << 10, 2 << 20);
  }();
  return bytes;
}

// Rows a multiple of 4 KiB apart share the sets of the first cache: 14 rows of a tile do not fit its 12 (or 8) ways.
bool bad_stride(int64_t floats) { return floats != 0 && floats * 4 % 4096 == 0; }

// B does not fit the second cache.
bool is_far(const Gemm& p) { return p.k * p.n * int64_t(sizeof(float)) > l2_bytes(); }

void choose_source_b(Blocking& blocking) {
  const Gemm& p = blocking.problem;
  if (p.b.packed) return;
  // A short product reads B too seldom for packing to pay, if its rows are contiguous.
  const int64_t tile_rows = micro_kernels().max_rows;
  const bool far = is_far(p);  // 16x1024x1024: 1.22 ms packed, 0.76 in place
  const bool short_panel = p.k <= 128 && !bad_stride(p.b.stride_k);
  const bool in_place =
      p.b.stride_n == 1 &&
      (p.m <= tile_rows || (p.m <= 2 * tile_rows && (far || !bad_stride(p.b.stride_k))) || short_panel);
  blocking.b = in_place ? SourceB::kInPlace : SourceB::kPackedPerCall;
}

// Each part of k writes a partial C.
void split_k(Blocking& blocking) {
  const Gemm& p = blocking.problem;
  blocking.parts_k = std::clamp<int64_t>(p.parts_k, 1, std::max<int64_t>(1, p.k));
  if (blocking.parts_k > 1) blocking.partial_floats = round_up(p.m * round_up(p.n, 16), 16);
}

// Every thread gets the same number of parts; among the ways to cut, the one with the least work for the slowest
// thread, then the least traffic.
void split(Blocking& blocking, int threads) {
  const Gemm& p = blocking.problem;
  const int64_t panels = ceil_div(p.n, panel_width());
  const double flops = 2.0 * double(p.m) * double(p.n) * double(std::max<int64_t>(p.k, 1)) * double(blocking.batches);
  // A region costs half a microsecond or more: under some 200 kFLOP, a microsecond of a thread, it does not pay.
  threads = int(std::clamp<double>(flops / 2e5, 1, threads));
  blocking.threads = threads;
  const int64_t matrices = blocking.batches * blocking.parts_k;
  int64_t parts = threads / std::gcd(int64_t(threads), matrices);
  if (matrices >= 4 * threads) parts = 1;
  double best = 0;
  for (int64_t rows = 1; rows <= parts; ++rows) {
    const int64_t cols = parts / rows;
    if (rows > std::max<int64_t>(p.m, 1) || cols > std::max<int64_t>(panels, 1)) continue;
    const double work = double(ceil_div(p.m, rows)) * double(ceil_div(panels, cols));
    const double traffic = double(p.m) * double(cols) + double(p.n) * double(rows);
    const double cost = work * (1 + 1e-2 * traffic / (double(p.m) + double(p.n)));
    if (best != 0 && cost >= best) continue;
    best = cost;
    blocking.parts_rows = rows;
    blocking.parts_cols = cols;
  }
  blocking.tasks = matrices * blocking.parts_rows * blocking.parts_cols;
  blocking.threads = int(std::min<int64_t>(threads, std::max<int64_t>(blocking.tasks, 1)));
}

void choose_blocks(Blocking& blocking) {
  const Gemm& p = blocking.problem;
  const int64_t width = panel_width();
  // Floats of A that stay in the second cache: a quarter of it. Half of it lost 2 to 4 points at 1024 and 2048 cubed.
  const int64_t budget = l2_bytes() / 4 / int64_t(sizeof(float));

  // Long blocks of k, so that C is seldom read again: 1024 cubed reaches 92 % of the peak in one block of k, 89 in two,
  // 83 in four. But two panels of B are to fit the second cache, the one in use and the one being fetched, unless there
  // is one tile.
  const int64_t part_k = ceil_div(p.k, blocking.parts_k);
  const bool whole_k = part_k <= 1536 || (part_k <= 8192 && p.m <= micro_kernels().max_rows);
  blocking.block_k = whole_k ? part_k : round_up(ceil_div(part_k, ceil_div(part_k, 1024)), 16);
  // B as it is, from far away: down a panel of it each row is another page. Some rows at a time are as many streams,
  // and the few rows of C stay in the first cache. One thread, us by whole k, 8, 16, 32, 64 rows: 1x4096x4096 14600,
  // 4670, 4610, 4670, 7300; 4x1024x4096 4300, 1400, 1360, 1640 to 3670, 2000; from the second cache whole columns are
  // faster (8x1024x256 27, 40, 36, 31, 28).
  if (blocking.b == SourceB::kInPlace && is_far(p)) blocking.block_k = std::min<int64_t>(part_k, 16);
  if (p.tile.k) blocking.block_k = std::min(part_k, p.tile.k);

  const int64_t part_rows = ceil_div(std::max<int64_t>(p.m, 1), blocking.parts_rows);
  int64_t ruled = std::clamp<int64_t>(budget / std::max<int64_t>(blocking.block_k, 1), 56, 768);
  // Where k is short, most of what moves is C. Few rows of it at a time are few pages and few streams, if B stays in
  // the second cache to be read again. 1024x2048, us by blocks of 561 and of 28 rows: k = 16: 749, 577; 32: 1175, 912;
  // 64: 1933, 1617; 128: 3682, 3157; 256: 6695, 6294, and no difference that could be told.
  if (p.k <= 128 && p.k * p.n * int64_t(sizeof(float)) <= l2_bytes())
    ruled = std::min<int64_t>(ruled, 2 * micro_kernels().max_rows);
  const int64_t most = p.tile.rows ? p.tile.rows : ruled;
  blocking.block_rows = ceil_div(part_rows, ceil_div(part_rows, most));

  const int64_t part_panels = std::max<int64_t>(1, ceil_div(ceil_div(p.n, width), blocking.parts_cols));
  blocking.block_panels = part_panels;
  if (blocking.b == SourceB::kPackedPerCall) {
    blocking.block_panels =
        std::clamp<int64_t>(budget / std::max<int64_t>(blocking.block_k * width, 1), 1, part_panels);
    // A would be copied for each block of panels: worse than what its stride costs.
    if (blocking.block_panels < part_panels && blocking.a == SourceA::kPacked && p.a.k_stride == 1)
      blocking.a = SourceA::kInPlace;
  }
  if (p.tile.cols) blocking.block_panels = std::clamp<int64_t>(ceil_div(p.tile.cols, width), 1, part_panels);
  if (p.epilogue.hook)  // a finished block of C is to stay in the second cache until the hook has seen it
    blocking.block_panels = std::min(blocking.block_panels, std::max<int64_t>(1, 256 / width));
}

void size_copies(Blocking& blocking) {
  if (blocking.a == SourceA::kPacked) {
    blocking.a_pitch = round_up(blocking.block_k, 16) + 16;
    blocking.a_floats = blocking.block_rows * blocking.a_pitch;
  }
  if (blocking.b == SourceB::kPackedPerCall)
    blocking.b_floats = blocking.block_panels * panel_width() * blocking.block_k;
  // 64-byte lines, and threads apart by an odd number of lines.
  if (blocking.a_floats) blocking.a_floats = round_up(blocking.a_floats, 16) + 16;
  if (blocking.b_floats) blocking.b_floats = round_up(blocking.b_floats, 16) + 32;
}

int64_t count_batches(const Gemm& problem) {
  int64_t batches = 1;
  for (int axis = 0; axis < problem.batch_axes; ++axis) batches *= problem.batch[size_t(axis)].extent;
  return batches;
}

}  // namespace

Blocking make_blocking(const Gemm& problem, int threads) {
  Blocking blocking;
  blocking.problem = problem;
  blocking.batches = count_batches(problem);
  const Gemm& p = blocking.problem;
  if (p.a.k_stride != 1 || (bad_stride(p.a.row_stride) && p.m > 4 && p.n > 4 * panel_width()))
    blocking.a = SourceA::kPacked;
  choose_source_b(blocking);
  split_k(blocking);
  split(blocking, threads);
  choose_blocks(blocking);
  size_copies(blocking);
  return blocking;
}

Blocking make_thin_blocking(const Gemm& problem, int threads) {
  Blocking blocking;
  blocking.problem = problem;
  blocking.thin = true;
  blocking.batches = count_batches(problem);
  blocking.block_rows = problem.m;
  split_k(blocking);
  blocking.block_k = ceil_div(problem.k, blocking.parts_k);
  split(blocking, threads);
  blocking.block_panels = std::max<int64_t>(1, ceil_div(problem.n, panel_width()));
  return blocking;
}

BlockBytes block_bytes(const Blocking& blocking) {
  const int64_t float_bytes = int64_t(sizeof(float)), panel = panel_width() * blocking.block_k * float_bytes;
  const int64_t panels = blocking.b == SourceB::kPackedPerCall ? blocking.block_panels : 2;
  return {blocking.block_rows * blocking.block_k * float_bytes, panels * panel, l2_bytes()};
}

}  // namespace ridgeline::cpu
