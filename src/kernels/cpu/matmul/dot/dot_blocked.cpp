#include "kernels/cpu/matmul/dot/dot_blocked.h"

#include <algorithm>

#include "core/integer.h"
#include "kernels/cpu/matmul/dot/dot_finish.h"
#include "kernels/cpu/matmul/dot/dot_rows.h"
#include "kernels/cpu/matmul/dot/dot_sweep.h"
#include "machine/probe.h"

namespace ridgeline::cpu {
namespace {

constexpr int kRows = kDotSweepRows;
constexpr int64_t kSumsBytes = kRows * kDotColumns * 4;

int64_t element_bytes(DotType type) { return type == DotType::kBf16 ? 2 : 1; }

struct Blocking {
  int64_t blocks, rows;                // of k; rows of A at a time
  int64_t row_sums, row, keep, bytes;  // offsets in a thread's workspace, and its size
};

Blocking blocking_of(DotType type, int64_t m, int64_t k) {
  Blocking b{};
  b.blocks = ceil_div(k * element_bytes(type), kDotBlock);
  // Three eighths of the second cache: panels and results pass through it, too.
  const int64_t fit = this_cpu().caches.l2 * 3 / 8 / std::max<int64_t>(kDotBlock, b.blocks * kDotBlock);
  b.rows = std::min(std::max<int64_t>(kRows, fit / kRows * kRows), round_up(m, kRows));
  b.row_sums = b.rows * b.blocks * kDotBlock;
  b.row = b.row_sums + b.rows * 4;
  b.keep = b.row + b.blocks * kDotBlock;
  b.bytes = round_up(b.keep + b.rows * kDotColumns * 4 + kSumsBytes, 4096);
  return b;
}

struct Work {
  const DotGemm& p;
  DotPieceKernel kernel;
  Blocking blocking;
  char* workspace;
  int64_t panels, panel_bytes;
  int64_t parts_rows, parts_cols;
  bool stream;
};

// Rows are split where reading B once more for each part costs less than bringing A into place once more does.
void split(Work& w, int threads) {
  const int64_t units = ceil_div(w.p.m, 16);
  double best = 0;
  for (int64_t rows = 1; rows <= std::min<int64_t>(threads, units); ++rows) {
    const int64_t cols = std::min<int64_t>(threads / rows, w.panels);
    const double part_units = double(ceil_div(units, rows)), part_panels = double(ceil_div(w.panels, cols));
    const double passes = double(ceil_div(ceil_div(units, rows) * 16, w.blocking.rows));
    // Nanoseconds for a block of k: half a step of 32 rows; 16 rows packed, a panel's piece read.
    const double cost =
        part_units * part_panels * 13 + part_units * 16 * 64 * 2 / 20 + part_panels * passes * kDotPanelBlock / 20;
    if (rows > 1 && cost >= best) continue;
    best = cost;
    w.parts_rows = rows;
    w.parts_cols = cols;
  }
}

void pack_rows(const Work& w, char* own, int64_t begin, int64_t end) {
  const DotGemm& p = w.p;
  const Blocking& b = w.blocking;
  const int64_t bytes = p.a_row_stride * (p.a_dtype == DType::kF32 ? 4 : element_bytes(p.type));
  const int64_t padded = b.blocks * kDotBlock;
  const bool as_is = p.a_dtype != DType::kF32 && p.a_dtype != DType::kI8 && p.k * element_bytes(p.type) == padded;
  uint8_t *tiles = reinterpret_cast<uint8_t*>(own), *copy = reinterpret_cast<uint8_t*>(own + b.row);
  int32_t* row_sums = reinterpret_cast<int32_t*>(own + b.row_sums);
  for (int64_t r = begin; r < end; ++r) {
    const uint8_t* row = static_cast<const uint8_t*>(p.a) + r * bytes;
    if (!as_is) {
      dot_copy_row(p.type, row, p.a_dtype, p.k, copy, padded);
      row = copy;
    }
    const int64_t at = r - begin;
    if (p.want_row_sums) row_sums[at] = sum_u8(row, padded);
    dot_scatter_row(row, b.blocks, tiles + at / 16 * 16 * padded + at % 16 * 64);
  }
}

struct Finished {
  const Work* work;
  int64_t begin;
  const int32_t* row_sums;
};

void finish_tile(const void* context, int64_t row, int rows, int64_t panel, void* sums) {
  const Finished& f = *static_cast<const Finished*>(context);
  const DotGemm& p = f.work->p;
  const int64_t col = panel * kDotColumns;
  p.finish(p.context, {sums, p.want_row_sums ? f.row_sums + row : nullptr, f.begin + row, col, rows,
                       int(std::min<int64_t>(kDotColumns, p.n - col)), f.work->stream});
}

void run_rows(const Work& w, char* own, int64_t begin, int64_t end, int64_t first, int64_t last, bool more) {
  const DotGemm& p = w.p;
  const Blocking& b = w.blocking;
  const Finished context{&w, begin, reinterpret_cast<const int32_t*>(own + b.row_sums)};
  DotSweep s;
  s.kernel = w.kernel;
  s.a = reinterpret_cast<const uint8_t*>(own);
  s.rows = end - begin;
  s.row_bytes = b.blocks * kDotBlock;
  s.panels = p.panels;
  s.blocks = b.blocks;
  s.panel_bytes = w.panel_bytes;
  s.first = first, s.last = last;
  s.again = more;
  s.keep = own + b.keep;
  s.sums = s.keep + b.rows * kDotColumns * 4;
  if (p.y && !w.stream) {
    s.y = static_cast<const uint8_t*>(p.y) + begin * p.y_row_stride * p.y_bytes;
    s.y_row = p.y_row_stride * p.y_bytes;
    s.y_row_bytes = p.n * p.y_bytes;
    s.y_panel = kDotColumns * p.y_bytes;
  }
  s.finish = finish_tile;
  s.context = &context;
  dot_sweep(s);
}

void run_cell(const Work& w, int64_t cell, int thread) {
  const int64_t row_part = cell / w.parts_cols, col_part = cell % w.parts_cols, units = ceil_div(w.p.m, 16);
  const int64_t begin = std::min(w.p.m, units * row_part / w.parts_rows * 16),
                end = std::min(w.p.m, units * (row_part + 1) / w.parts_rows * 16);
  const int64_t first = w.panels * col_part / w.parts_cols, last = w.panels * (col_part + 1) / w.parts_cols;
  if (begin == end || first == last) return;
  char* own = w.workspace + thread * w.blocking.bytes;
  dot_pieces_enter();
  for (int64_t row = begin; row < end; row += w.blocking.rows) {
    const int64_t row_end = std::min(end, row + w.blocking.rows);
    pack_rows(w, own, row, row_end);
    run_rows(w, own, row, row_end, first, last, row_end < end);
  }
  dot_pieces_leave();
}

}  // namespace

int64_t dot_blocked_workspace(DotType type, int64_t m, int64_t k, int threads) {
  return threads * blocking_of(type, m, k).bytes;
}

void dot_blocked(const DotGemm& problem, DotPieceKernel kernel, void* workspace, const ThreadPool& pool) {
  Work w{problem, kernel, blocking_of(problem.type, problem.m, problem.k), static_cast<char*>(workspace), 0, 0, 1,
         1,       false};
  w.panels = ceil_div(problem.n, kDotColumns);
  w.panel_bytes = w.blocking.blocks * kDotPanelBlock;
  split(w, pool.threads());
  w.stream =
      problem.y && problem.may_stream && dot_streams(problem.y, problem.m, problem.y_row_stride * problem.y_bytes);
  const auto run = [&w](int64_t begin, int64_t end, int thread) {
    for (int64_t cell = begin; cell < end; ++cell) run_cell(w, cell, thread);
  };
  pool.run(w.parts_rows * w.parts_cols, 1, run);
}

}  // namespace ridgeline::cpu
