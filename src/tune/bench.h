// bench: every kernel that can run a problem, as a prepared step, beside the ceiling that bounds it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/kernel.h"
#include "machine/roofline.h"
#include "tune/timing.h"

namespace ridgeline {

struct BenchRow {
  std::string name;
  bool rival = false;
  bool supported = false;
  std::string reason;  // why not supported, or not timed
  std::string layout;  // "channels last" where the kernel took that
  Samples samples;
  double ceiling = 0;  // Gop/s or GB/s, whichever bounds, measured between this row's samples
  double gop_s = 0, gb_s = 0, roof_share = 0;
  double burst_share = 0;  // of the machine's best window, where arithmetic bounds: the clock under load is lower
  bool chosen = false;
  Tile tile;
  std::optional<TileCheck> tile_check;  // where a tile was asked for
  bool timed() const { return samples.count() > 0; }
};

struct BenchResult {
  Cost cost;
  Floor floor;         // by the ceiling measured beside it
  double ceiling = 0;  // of the chosen row
  std::string ceiling_way;
  std::string chosen_by;  // tuned, table, model or only; empty: the choice was not timed
  std::vector<BenchRow> rows;
};

struct BenchOptions {
  bool warm = false;
  double seconds = 1;        // a kernel
  std::string forced;        // time this kernel alone
  std::optional<Tile> tile;  // every kernel with this tile; those that it does not fit say so
  uint64_t seed = 1;
  std::function<void(const std::string&)> progress = [](const std::string&) {};  // before each kernel that is timed
  bool rivals = false;  // other libraries beside the chosen kernel, rows from the fastest on
};

/// Why a tile cannot be used, with the bytes that it is over.
std::string tile_refusal(const TileCheck& check);
/// "  tile 28x64x256: 61440 of 2097152 bytes, 12 % of its work is padding (a multiple of 1x16x1 has none)".
std::string tile_line(const TileCheck& check, const Tile& tile);
/// The word on a tile of each kernel that can run the problem in any of its layouts, by name. Throws Error{kUsage} with
/// all reasons and the bytes that it is over if it fits none.
std::vector<std::pair<std::string, TileCheck>> check_tile_everywhere(const Problem& problem, const Ceilings& ceilings,
                                                                     const Tile& tile);
/// "112x512": a tile's numbers without the zeros behind them; "" for a kernel that offers one tile, or goes by its
/// rule.
std::string tile_words(const Tile& tile);
/// The inverse. Throws Error{kUsage}.
Tile parse_kernel_tile(std::string_view text);

/// The layouts a kernel may be timed in: the one given, and before it channels last where the operator is one of images
/// whose layout is free (a convolution, a pool, a normalization of channels) and no layout was asked for. What a
/// movement costs is its layouts: those are never another.
std::vector<std::pair<std::string, Problem>> layouts_of(const Problem& problem);

/// Weights are packed before; inputs are normal random numbers; buffers rotate past the last cache unless warm.
BenchResult bench(const Problem& problem, const Ceilings& ceilings, const BenchOptions& options);

/// The same on the GPU in use, for a problem of DeviceKind::kCuda: calls over at least 256 MB of rotated buffers in one
/// graph of at least 2 ms, 11 replays; device time.
BenchResult bench_cuda(const Problem& problem, const Ceilings& ceilings, const BenchOptions& options);

}  // namespace ridgeline
