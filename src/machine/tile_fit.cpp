#include "machine/tile_fit.h"

#include <algorithm>
#include <charconv>

#include "core/integer.h"
#include "ridgeline/error.h"

namespace ridgeline {
namespace {

constexpr int64_t kMostTile = 1 << 16;  // so that bytes stay far from overflow
// Multiples of the unit's shape that are tried, and the largest extent of a tile.
constexpr int64_t kMultiples[] = {1, 2, 3, 4, 6, 8, 12, 14, 16, 24, 32, 64, 128};
constexpr int64_t kMostTried = 512;

std::vector<int64_t> extents(int64_t unit, int64_t needed) {
  std::vector<int64_t> out;
  for (const int64_t multiple : kMultiples) {
    const int64_t extent = unit * multiple;
    if (extent <= std::max(kMostTried, unit) && (multiple == 1 || extent - unit < needed)) out.push_back(extent);
  }
  return out;
}

}  // namespace

std::string TileShape::text() const { return fmt::format("{}x{}x{}", m, n, k); }

TileShape parse_tile(std::string_view text) {
  TileShape tile;
  const char *at = text.data(), *end = text.data() + text.size();
  bool good = true;
  for (int64_t* extent : {&tile.m, &tile.n, &tile.k}) {
    if (extent != &tile.m) good = good && at != end && *at++ == 'x';
    if (!good) break;
    const auto [stop, error] = std::from_chars(at, end, *extent);
    good = error == std::errc() && *extent >= 1 && *extent <= kMostTile;
    at = stop;
  }
  if (!good || at != end)
    fail(ErrorCode::kUsage, "tile={}: expected MxNxK, three whole numbers from 1 to {}", text, kMostTile);
  return tile;
}

TileFit fit_tile(const DescribedMachine& machine, const DescribedRate& rate, const TileShape& tile, DType a, DType b) {
  TileFit fit;
  fit.tile = tile;
  fit.accumulator = rate.accumulator;
  fit.a_bytes = bytes_of(a, tile.m * tile.k);
  fit.b_bytes = bytes_of(b, tile.k * tile.n);
  fit.c_bytes = bytes_of(rate.accumulator, tile.m * tile.n);
  fit.fits = fit.fits_double = true;
  for (const DescribedBuffer& buffer : machine.buffers) {
    BufferUse use{buffer, 0, 0};
    if (buffer.inputs)
      use.single_bytes += fit.a_bytes + fit.b_bytes, use.double_bytes += 2 * (fit.a_bytes + fit.b_bytes);
    if (buffer.accumulators) use.single_bytes += fit.c_bytes, use.double_bytes += fit.c_bytes;
    fit.fits = fit.fits && use.over_single() == 0;
    fit.fits_double = fit.fits_double && use.over_double() == 0;
    fit.buffers.push_back(use);
  }
  const auto& [m, n, k] = rate.shape;
  const TileShape padded = {round_up(tile.m, m), round_up(tile.n, n), round_up(tile.k, k)};
  fit.padding_share = 1 - double(tile.volume()) / double(padded.volume());
  return fit;
}

std::vector<TileFit> feasible_tiles(const DescribedMachine& machine, const DescribedRate& rate,
                                    const TileShape& problem, DType a, DType b) {
  std::vector<TileFit> out;
  for (const int64_t m : extents(rate.shape[0], problem.m))
    for (const int64_t n : extents(rate.shape[1], problem.n))
      for (const int64_t k : extents(rate.shape[2], problem.k))
        if (TileFit fit = fit_tile(machine, rate, {m, n, k}, a, b); fit.fits) out.push_back(std::move(fit));
  return out;
}

}  // namespace ridgeline
