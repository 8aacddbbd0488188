// Does a tile of a product fit the on-chip buffers of a described machine, and how well does it fill the unit?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "machine/described.h"

namespace ridgeline {

/// C[m,n] += A[m,k] B[k,n]: what one core works on between two looks at memory.
struct TileShape {
  int64_t m = 0, n = 0, k = 0;
  bool operator==(const TileShape&) const = default;
  int64_t volume() const { return m * n * k; }
  std::string text() const;  // 192x64x64
};

/// "192x64x64". Throws Error{kUsage}.
TileShape parse_tile(std::string_view text);

struct BufferUse {
  DescribedBuffer buffer;
  int64_t single_bytes = 0, double_bytes = 0;  // with one and with two sets of inputs
  int64_t over_single() const { return single_bytes > buffer.bytes ? single_bytes - buffer.bytes : 0; }
  int64_t over_double() const { return double_bytes > buffer.bytes ? double_bytes - buffer.bytes : 0; }
};

struct TileFit {
  TileShape tile;
  DType accumulator = DType::kNone;
  int64_t a_bytes = 0, b_bytes = 0, c_bytes = 0;
  int64_t single_bytes() const { return a_bytes + b_bytes + c_bytes; }
  int64_t double_bytes() const { return 2 * (a_bytes + b_bytes) + c_bytes; }
  std::vector<BufferUse> buffers;
  bool fits = false, fits_double = false;
  double padding_share = 0;  // of the unit's work that falls on padding: 0 if the tile is a multiple of its shape
};

TileFit fit_tile(const DescribedMachine& machine, const DescribedRate& rate, const TileShape& tile, DType a, DType b);

/// Every aligned tile that fits with one set of inputs and is no larger than the problem needs.
std::vector<TileFit> feasible_tiles(const DescribedMachine& machine, const DescribedRate& rate,
                                    const TileShape& problem, DType a, DType b);

}  // namespace ridgeline
