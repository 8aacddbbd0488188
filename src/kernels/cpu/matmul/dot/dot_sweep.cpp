#include "kernels/cpu/matmul/dot/dot_sweep.h"

#include <algorithm>

#include "core/integer.h"
#include "kernels/cpu/matmul/dot/dot_micro.h"

namespace ridgeline::cpu {
namespace {

constexpr int64_t kPanelLines = kDotPanelBlock / 64;  // of a block of k

int64_t pieces_of(int64_t rows, int64_t blocks) {
  return rows > kDotSweepRows ? std::max<int64_t>(1, ceil_div(blocks, kDotPieceBlocks)) : 1;
}

class Sweep {
 public:
  explicit Sweep(const DotSweep& sweep) : s_(sweep), tiles_(ceil_div(sweep.rows, kDotSweepRows)) {
    piece_.keep_a = s_.rows_first;
  }

  void rows_first() {
    piece_.blocks = s_.blocks;
    piece_.offsets = s_.offsets;
    piece_.to = s_.sums;
    for (int64_t row = 0; row < s_.rows; row += kDotSweepRows) {
      place_rows(row, 0);
      piece_.next_lines = row == 0 ? int(kPanelLines) : 0;  // from then on B is in the second cache
      for (int64_t panel = s_.first; panel < s_.last; ++panel) {
        piece_.b = s_.panels + panel * s_.panel_bytes;
        piece_.next = piece_.b + s_.panel_bytes;
        piece_.next_end = panel + 1 < s_.last ? piece_.next + s_.panel_bytes : piece_.next;
        multiply(row, panel, true);
      }
    }
  }

  void panels_first() {
    const int64_t pieces = pieces_of(s_.rows, s_.blocks);
    piece_.next_lines = int(ceil_div(kPanelLines, tiles_));
    for (int64_t panel = s_.first; panel < s_.last; ++panel) {
      for (int64_t k = 0, i = 0; i < pieces; ++i) {
        const int64_t k_end = s_.blocks * (i + 1) / pieces;
        piece_.b = s_.panels + panel * s_.panel_bytes + k * kDotPanelBlock;
        piece_.blocks = k_end - k;
        piece_.offsets = s_.offsets ? s_.offsets + k : nullptr;
        // The next piece, or the first again for the next rows.
        const bool next = i + 1 < pieces || panel + 1 < s_.last;
        piece_.next = next ? piece_.b + piece_.blocks * kDotPanelBlock : s_.panels + s_.first * s_.panel_bytes;
        piece_.next_end = next || s_.again ? piece_.next + piece_.blocks * kDotPanelBlock : piece_.next;
        for (int64_t row = 0; row < s_.rows; row += kDotSweepRows) {
          place_rows(row, k);
          char* own = s_.keep + row * kDotColumns * 4;
          piece_.from = i ? own : nullptr;
          piece_.to = i + 1 < pieces ? own : s_.sums;
          multiply(row, panel, i + 1 == pieces);
          piece_.next = std::min(piece_.next_end, piece_.next + piece_.next_lines * piece_.blocks * 64);
        }
        k = k_end;
      }
    }
  }

 private:
  void place_rows(int64_t row, int64_t block) {
    const bool direct = row < s_.direct_rows;
    piece_.rows = int(std::min<int64_t>(kDotSweepRows, s_.rows - row));
    piece_.a_pitch = direct ? s_.pitch : s_.rest_pitch;
    piece_.a_rows = 16 * (direct ? s_.row_bytes : s_.rest_pitch);
    piece_.a = direct ? s_.a + row * s_.row_bytes : s_.rest + (row - s_.direct_rows) * s_.rest_pitch;
    if (!s_.offsets) piece_.a += block * 1024;
  }

  void multiply(int64_t row, int64_t panel, bool last_piece) {
    piece_.y = nullptr;
    if (last_piece && s_.y) {
      const int64_t column = panel * s_.y_panel;
      piece_.y = s_.y + row * s_.y_row + column;
      piece_.y_row = s_.y_row;
      piece_.y_row_bytes = int(std::min<int64_t>(s_.y_panel, s_.y_row_bytes - column));
    }
    s_.kernel(piece_);
    if (last_piece) s_.finish(s_.context, row, piece_.rows, panel, s_.sums);
  }

  const DotSweep& s_;
  int64_t tiles_;
  DotPiece piece_;
};

}  // namespace

int64_t dot_sweep_keep_bytes(int64_t rows, int64_t blocks, bool rows_first) {
  return rows_first || pieces_of(rows, blocks) == 1 ? 0 : round_up(rows, kDotSweepRows) * kDotColumns * 4;
}

void dot_sweep(const DotSweep& sweep) {
  Sweep s(sweep);
  sweep.rows_first ? s.rows_first() : s.panels_first();
}

}  // namespace ridgeline::cpu
