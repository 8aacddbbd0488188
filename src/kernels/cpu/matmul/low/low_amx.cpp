#include "kernels/cpu/matmul/low/low_amx.h"

#include <algorithm>

#include "core/integer.h"
#include "kernels/cpu/matmul/dot/dot_micro.h"
#include "kernels/cpu/matmul/dot/dot_pieces.h"
#include "kernels/cpu/matmul/low/low_groups.h"
#include "machine/probe.h"

namespace ridgeline::cpu {
namespace {

constexpr int64_t kPiece = 512;        // k of a piece in groups
constexpr int64_t kSumsBytes = 16384;  // of low_groups

// One scale for all of k and levels as the tiles take them: the pieces of dot_gemm, in i32 to the end.
bool whole(const LowShape& s) { return s.bits == 8 && s.chunks == 1 && s.k % 64 == 0; }
int64_t piece_chunks(const LowShape& s) { return std::min(s.chunks, std::max<int64_t>(1, kPiece / s.chunk)); }
int64_t y_bytes(const LowShape& s) { return low_amx_rows(s) * kLowColumns * 4; }
int64_t level_bytes(const LowShape& s) { return whole(s) ? 0 : round_up(piece_chunks(s) * s.chunk * kLowColumns, 64); }

void whole_panel(const LowShape& s, const LowAmxBlock& b) {
  static const DotPieceKernel kernel = dot_piece_kernel(DotPieceType::kS8U8);
  const int64_t blocks = s.k / 64, tiles = ceil_div(b.rows, 32),
                pieces = tiles > 1 ? ceil_div(blocks, kDotPieceBlocks) : 1;
  DotPiece piece;
  piece.a_rows = 16 * s.k;
  piece.next_lines = int(ceil_div(kDotPanelBlock / 64, tiles));
  for (int64_t k = 0, i = 0; i < pieces; ++i) {
    const int64_t k_end = blocks * (i + 1) / pieces;
    piece.b = b.w + k * kDotPanelBlock;
    piece.blocks = k_end - k;
    piece.next = piece.b + piece.blocks * kDotPanelBlock;
    piece.next_end = i + 1 < pieces || b.more ? piece.next + piece.blocks * kDotPanelBlock : piece.next;
    for (int row = 0; row < b.rows; row += 32) {
      float* y = reinterpret_cast<float*>(b.own) + row * kLowColumns;
      piece.rows = std::min(32, b.rows - row);
      piece.a = reinterpret_cast<const uint8_t*>(b.levels) + row * s.k + k * 1024;
      piece.from = i ? y : nullptr;
      piece.to = y;
      kernel(piece);
      piece.next = std::min(piece.next_end, piece.next + piece.next_lines * piece.blocks * 64);
      if (i + 1 < pieces) continue;
      low_scale_rows(
          {y, piece.rows, true, b.scales.scale, b.scales.low, b.scale + row, b.weighted + row, b.start + row, 1});
    }
    k = k_end;
  }
}

void groups_panel(const LowShape& s, const LowAmxBlock& b) {
  const int64_t tiles = ceil_div(b.rows, 32), k_bytes = s.bits * kLowColumns / 8;  // of the panel for each k
  const bool one_scale = s.act_block == s.k && !b.scales.low;
  int8_t* levels = reinterpret_cast<int8_t*>(b.own + y_bytes(s));
  LowGroups g;
  g.a = b.levels;
  g.a_rows = 16 * round_up(s.k, 64);
  g.w = levels;
  g.rows = b.rows;
  g.chunk = s.chunk;
  g.a_pitch = s.chunks;
  g.y = reinterpret_cast<float*>(b.own);
  g.sums = reinterpret_cast<int32_t*>(b.own + y_bytes(s) + level_bytes(s));
  for (int64_t chunk = 0; chunk < s.chunks; chunk += g.chunks) {
    g.chunks = std::min(piece_chunks(s), s.chunks - chunk);
    g.k = chunk * s.chunk;
    const int64_t k = g.chunks * s.chunk;
    low_signed_levels(b.w + g.k * k_bytes, k, s.bits, s.offset, levels);
    g.scale = b.scales.scale + chunk * kLowColumns;
    g.low = b.scales.low ? b.scales.low + chunk * kLowColumns : nullptr;
    g.a_scale = one_scale ? nullptr : b.scale + chunk;
    g.a_weighted = b.weighted + chunk;
    g.first = chunk == 0;
    g.next = b.w + (g.k + k) * k_bytes;
    g.next_end = g.k + k < s.k || b.more ? g.next + k * k_bytes : g.next;
    g.next_lines = ceil_div(k * k_bytes / 64, g.chunks * tiles);
    low_groups(g);
  }
  if (one_scale) low_scale_rows({g.y, b.rows, false, nullptr, nullptr, b.scale, nullptr, nullptr, s.chunks});
}

}  // namespace

bool low_amx_suits(const LowShape& s) {
  return s.quantize && s.m >= 12 && s.chunk % 32 == 0 && dot_piece_kernel(DotPieceType::kS8U8);
}

// Half of the second cache; as equal blocks as can be.
int64_t low_amx_rows(const LowShape& s) {
  const int64_t fit = std::max<int64_t>(32, this_cpu().caches.l2 / 2 / round_up(s.k, 64) / 32 * 32);
  return round_up(ceil_div(s.m, ceil_div(s.m, fit)), 32);
}

int64_t low_amx_bytes(const LowShape& s) { return y_bytes(s) + level_bytes(s) + (whole(s) ? 0 : kSumsBytes); }

void low_amx_panel(const LowShape& s, const LowAmxBlock& b) { whole(s) ? whole_panel(s, b) : groups_panel(s, b); }

}  // namespace ridgeline::cpu
