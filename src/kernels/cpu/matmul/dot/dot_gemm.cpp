#include "kernels/cpu/matmul/dot/dot_gemm.h"

#include <algorithm>
#include <cstring>

#include "core/integer.h"
#include "kernels/cpu/elementwise/stream.h"
#include "kernels/cpu/matmul/dot/dot_blocked.h"
#include "kernels/cpu/matmul/dot/dot_finish.h"
#include "kernels/cpu/matmul/dot/dot_rows.h"
#include "machine/probe.h"

namespace ridgeline::cpu {
namespace {

int64_t element_bytes(DotType type) { return type == DotType::kBf16 ? 2 : 1; }
int64_t blocks_of(DotType type, int64_t k) { return ceil_div(k * element_bytes(type), kDotBlock); }

// Bytes between rows of the copy of A: an odd number of lines, so that the 16 rows of a tile lie in different sets.
int64_t pitch_of(DotType type, int64_t k) {
  const int64_t lines = std::max<int64_t>(1, blocks_of(type, k));
  return (lines | 1) * kDotBlock;
}

// AMX works on 16 rows at a time and its tiles cost as much for fewer.
DotPieceKernel amx_for(DotType type, int64_t m) {
  return m < 8 ? nullptr : dot_piece_kernel(type == DotType::kBf16 ? DotPieceType::kBf16 : DotPieceType::kU8S8);
}

struct Work {
  const DotGemm& p;
  const DotKernels& kernels;
  uint8_t* a;         // padded rows
  int32_t* row_sums;  // null for bf16
  uint8_t* scratch;   // a block of sums a thread
  int64_t pitch, blocks, panel_bytes, panels, block_rows;
  int64_t parts_rows, parts_cols;
  bool stream;
};

void pack_rows(const Work& w, int64_t begin, int64_t end) {
  const DotGemm& p = w.p;
  const int64_t bytes = p.a_row_stride * (p.a_dtype == DType::kF32 ? 4 : element_bytes(p.type));
  for (int64_t r = begin; r < end; ++r) {
    uint8_t* to = w.a + r * w.pitch;
    dot_copy_row(p.type, static_cast<const uint8_t*>(p.a) + r * bytes, p.a_dtype, p.k, to, w.blocks * kDotBlock);
    if (w.row_sums) w.row_sums[r] = sum_u8(to, w.blocks * kDotBlock);
  }
}

// The next panel comes into the second cache while this one is used, a share with each tile: with B in DRAM the
// hardware's own prefetch stops at each page.
void fetch(const uint8_t* from, int64_t bytes) {
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
}

void run_cell(const Work& w, int64_t cell, int thread) {
  const DotGemm& p = w.p;
  const int64_t row_part = cell / w.parts_cols, col_part = cell % w.parts_cols;
  const int64_t units = ceil_div(p.m, 16);
  const int64_t row_begin = std::min(p.m, units * row_part / w.parts_rows * 16),
                row_end = std::min(p.m, units * (row_part + 1) / w.parts_rows * 16);
  const int64_t first = w.panels * col_part / w.parts_cols, last = w.panels * (col_part + 1) / w.parts_cols;
  if (row_begin == row_end || first == last) return;
  uint8_t* sums = w.scratch + int64_t(thread) * kMostDotRows * kDotColumns * 4;
  for (int64_t begin = row_begin; begin < row_end; begin += w.block_rows) {
    const int64_t end = std::min(row_end, begin + w.block_rows), rows = end - begin;
    const int64_t tiles = ceil_div(rows, w.kernels.rows);
    for (int64_t panel = first; panel < last; ++panel) {
      const uint8_t* b = p.panels + panel * w.panel_bytes;
      const int64_t share = panel + 1 < last ? w.panel_bytes / tiles / 64 * 64 : 0;
      int64_t row = begin;
      for (int64_t t = 0; t < tiles; ++t) {
        // Nearly equal ones, so that none has too few sums to hide the latency.
        const int64_t size = rows * (t + 1) / tiles - rows * t / tiles;
        fetch(b + w.panel_bytes + t * share, share);
        w.kernels.tile({w.a + row * w.pitch, w.pitch, w.blocks}, b, int(size), sums);
        const int64_t col = panel * kDotColumns;
        p.finish(p.context, {sums, w.row_sums ? w.row_sums + row : nullptr, row, col, int(size),
                             int(std::min<int64_t>(kDotColumns, p.n - col)), w.stream});
        row += size;
      }
    }
  }
  if (w.stream) end_stores();
}

int64_t a_bytes(DotType type, int64_t m, int64_t k) { return round_up(m, 16) * pitch_of(type, k); }
int64_t sums_bytes(int64_t m) { return round_up(m * 4, 64); }

}  // namespace

int64_t dot_panel_bytes(DotType type, int64_t k, int64_t n) {
  return ceil_div(n, kDotColumns) * blocks_of(type, k) * kDotPanelBlock;
}

void dot_pack(DotType type, const void* b, DType dtype, int64_t stride_k, int64_t stride_n, int64_t k, int64_t n,
              uint8_t* panels, int64_t first, int64_t last) {
  const int64_t panel_bytes = blocks_of(type, k) * kDotPanelBlock, per = 4 / element_bytes(type);
  const uint8_t flip = dtype == DType::kU8 ? 0x80 : 0;
  for (int64_t col = first; col < last; col += kDotColumns) {
    uint8_t* panel = panels + col / kDotColumns * panel_bytes;
    std::memset(panel, 0, size_t(panel_bytes));
    const int64_t cols = std::min<int64_t>(kDotColumns, n - col);
    for (int64_t i = 0; i < k; ++i) {
      uint8_t* to = panel + i / per * (kDotColumns * 4) + i % per * element_bytes(type);
      for (int64_t j = 0; j < cols; ++j) {
        const int64_t at = i * stride_k + (col + j) * stride_n;
        if (type == DotType::kU8S8) {
          to[j * 4] = static_cast<const uint8_t*>(b)[at] ^ flip;
        } else if (dtype == DType::kBF16) {
          std::memcpy(to + j * 4, static_cast<const uint16_t*>(b) + at, 2);
        } else {
          const uint16_t narrow = f32_to_bf16(static_cast<const float*>(b)[at]);
          std::memcpy(to + j * 4, &narrow, 2);
        }
      }
    }
  }
}

void dot_column_sums(const uint8_t* panels, int64_t k, int64_t n, int32_t* sums) {
  const int64_t panel_bytes = blocks_of(DotType::kU8S8, k) * kDotPanelBlock;
  for (int64_t col = 0; col < n; ++col) {
    const uint8_t* panel = panels + col / kDotColumns * panel_bytes + col % kDotColumns * 4;
    int32_t sum = 0;
    for (int64_t step = 0; step < ceil_div(k, 4); ++step)
      for (int i = 0; i < 4; ++i) sum += int8_t(panel[step * kDotColumns * 4 + i]);
    sums[col] = sum;
  }
}

bool dot_streams(const void* y, int64_t rows, int64_t row_bytes) {
  constexpr int64_t kMesh = 64 << 20;
  const CacheSizes& caches = this_cpu().caches;
  const int64_t least = caches.l3 > kMesh ? caches.l2 : stream_threshold_bytes() / 2;
  return rows * row_bytes >= least && row_bytes % 64 == 0 && reinterpret_cast<uintptr_t>(y) % 64 == 0;
}

int64_t dot_workspace_bytes(DotType type, int64_t m, int64_t n, int64_t k, int threads) {
  if (m == 0 || n == 0) return 0;
  if (amx_for(type, m)) return dot_blocked_workspace(type, m, k, threads);
  return a_bytes(type, m, k) + sums_bytes(m) + int64_t(threads) * kMostDotRows * kDotColumns * 4;
}

void dot_gemm(const DotGemm& problem, void* workspace, const ThreadPool& pool) {
  if (problem.m == 0 || problem.n == 0) return;
  if (const DotPieceKernel amx = amx_for(problem.type, problem.m)) return dot_blocked(problem, amx, workspace, pool);
  const int threads = pool.threads();
  uint8_t* at = static_cast<uint8_t*>(workspace);
  Work w{problem, dot_kernels(problem.type), at, nullptr, nullptr, 0, 0, 0, 0, 0, 1, 1, false};
  at += a_bytes(problem.type, problem.m, problem.k);
  if (problem.want_row_sums) w.row_sums = reinterpret_cast<int32_t*>(at);
  at += sums_bytes(problem.m);
  w.scratch = at;
  w.stream = problem.y && dot_streams(problem.y, problem.m, problem.y_row_stride * problem.y_bytes);
  w.pitch = pitch_of(problem.type, problem.k);
  w.blocks = blocks_of(problem.type, problem.k);
  w.panel_bytes = w.blocks * kDotPanelBlock;
  w.panels = ceil_div(problem.n, kDotColumns);
  // A's block stays in the second cache while all panels pass; half of it, for the panels pass through, too.
  const int64_t in_cache = this_cpu().caches.l2 / 2 / w.pitch / kMostDotRows * kMostDotRows;
  w.block_rows = std::max<int64_t>(kMostDotRows, in_cache);
  w.parts_cols = std::min<int64_t>(threads, w.panels);
  w.parts_rows = std::min<int64_t>(threads / w.parts_cols, ceil_div(problem.m, 16));
  const auto pack = [&w](int64_t begin, int64_t end, int) { pack_rows(w, begin, end); };
  const auto run = [&w](int64_t begin, int64_t end, int thread) {
    for (int64_t cell = begin; cell < end; ++cell) run_cell(w, cell, thread);
  };
  // Rows worth a thread's start: some 64 KiB.
  pool.run(problem.m, std::max<int64_t>(1, 65536 / w.pitch), pack);
  pool.run(w.parts_rows * w.parts_cols, 1, run);
}

}  // namespace ridgeline::cpu
