#include "kernels/cuda/matvec/blocking.h"

#include <algorithm>
#include <bit>

#include "kernels/cuda/device.h"

namespace ridgeline::cuda {
namespace {

// Shared memory of few.cu and many.cu: for each warp its copies under way, the scales of its part of k, barriers; a row
// of x or, of all warps, chunks of all rows.
void place_bulk(const Problem& p, const RowsShape& s, Blocking& b) {
  const bool many = b.path == Path::kMany;
  const int parts = many ? b.cluster : b.warps;
  if (s.scaled() && (s.halves > 0 || p.has(3) || p.has(4))) {
    const int64_t steps = (s.steps() + parts - 1) / parts;
    if (s.halves > 0) {
      const int64_t groups = std::min(s.groups, (2 * steps - 1 + s.halves - 1) / s.halves + 1);
      b.room_groups = int64_t(std::bit_ceil(uint64_t(groups)));  // few numbers: each is compiled
    }
    for (int i = 2; i < p.op_inputs; ++i) {
      if (!p.has(i)) continue;
      const int64_t each = s.groups / p.input(i).shape()[1];
      b.scale_room += ((b.room_groups - 1 + each - 1) / each + 1) * 16 * info(p.input(i).dtype).bits / 8;
    }
    b.scale_room *= b.nt;
  }
  b.warp_bytes = b.depth * b.nt * int64_t(s.bits == 32 ? 4096 : 2048) + b.scale_room + (b.depth + 1) * 8;
  if (!many) b.warp_bytes += int64_t(256) * x_bytes(s);
  b.warp_bytes = (b.warp_bytes + 127) / 128 * 128;
  if (many) {
    const int64_t x_stage = int64_t(8) * b.mt * (256 * x_bytes(s) + 64);
    b.shared_bytes = std::max(b.warps * b.warp_bytes + b.x_stages * x_stage, b.tiles() * b.mt * 512);
  } else {
    b.shared_bytes = b.warps * (b.warp_bytes + (s.m == 1 ? 1 : 8) * (16 * b.nt + 4) * 4);
  }
}

bool lowers(const Problem& p, const RowsShape& s) { return s.scaled() && (p.has(3) || p.has(4)); }

}  // namespace

int x_bytes(const RowsShape& s) { return info(s.x).bits / 8; }
bool in_f16(const RowsShape& s) {
  return s.x == DType::kF16 && s.w != DType::kBF16 && s.w != DType::kF32 && !s.round_x;
}
int x_parts(const RowsShape& s) {
  if (in_f16(s) || s.x == DType::kBF16 || s.round_x) return 1;
  return s.x == DType::kF16 ? 2 : 3;
}
int w_parts(const RowsShape& s) { return s.w == DType::kF32 ? 3 : s.w == DType::kF16 && !in_f16(s) ? 2 : 1; }

Blocking blocking(const Problem& p, const RowsShape& s, const Tile& tile, Path path) {
  Blocking b;
  b.path = path;
  b.nt = tile.size[0], b.warps = tile.size[1], b.depth = tile.size[2];
  b.mt = s.m <= 8 ? 1 : s.m <= 16 ? 2 : s.m <= 32 ? 4 : 8;
  b.early = path == Path::kFew && tile.size[3] == 1;
  if (path == Path::kMany) b.cluster = std::max(1, tile.size[3]), b.x_stages = std::max(2, tile.size[4]);
  if (path != Path::kRows) {
    place_bulk(p, s, b);
    return b;
  }
  b.x_rows = s.m == 1 ? 1 : 8 * b.mt;
  // A whole number of rounds of the pipeline, at least so many steps of 64.
  const int least = b.mt == 1 ? 4 : b.mt <= 4 ? 2 : 1;
  const int chunk = (least + b.depth - 1) / b.depth * b.depth;
  b.x_chunk = 64 * chunk;
  b.buffers = (s.steps() + b.warps - 1) / b.warps > chunk ? 2 : 1;
  const int64_t buffer = int64_t(b.x_rows) * (b.x_chunk * x_bytes(s) + 64);
  b.shared_bytes = std::max<int64_t>(b.buffers * buffer * b.warps, int64_t(512) * b.nt * b.mt * b.warps);
  return b;
}

// The best that was measured at 4096 x 4096 and 11008 x 4096 (few.cu and many.cu say what else was tried). rows.cu, us
// by tile: bf16 1x8x4 9.4 and 22.7, 1x8x2 10.3 and 23.8, 1x16x2 9.6, 2x8x2 10.0 and 23.3, 1x4x2 11.0; i8 1x16x4 7.2,
// 1x8x4 7.8 and 15.0, 1x8x2 9.5, 1x4x4 11.5; i4 1x16x4 4.4 and 10.6, 1x8x8 4.9, 2x8x4 5.4, 1x8x4 5.9, 1x4x8 7.7.
Tile best_tile(const RowsShape& s, Path path) {
  Tile tile;
  const int64_t sms = target().multiprocessors;
  if (path == Path::kFew) {
    const bool one_wave = s.tiles() <= 2 * sms;
    if (s.bits == 32)
      tile.size = {1, 8, 2, 2};
    else if (s.bits == 16)
      tile.size = s.m > 1 ? std::array<int32_t, 6>{1, 8, 4, 1}
                          : std::array<int32_t, 6>{2, 8, one_wave ? 4 : 2, one_wave ? 2 : 1};
    else if (s.bits == 8)
      tile.size = one_wave || s.m > 1 ? std::array<int32_t, 6>{1, 8, 4, 2} : std::array<int32_t, 6>{1, 16, 2, 1};
    else
      tile.size = {1, 8, 2, one_wave && s.m == 1 ? 2 : 1};
  } else if (path == Path::kMany) {
    // As many blocks as share out k as fill the card, each with 16 steps at least.
    const int64_t columns = (s.tiles() + 7) / 8 * ((s.m + 63) / 64);
    int cluster = 1;
    while (cluster < 8 && columns * cluster * 6 < sms * 5 && s.steps() / cluster >= 16) cluster *= 2;
    tile.size = {1, 8, 2, cluster, s.m * x_bytes(s) <= 64 ? 4 : 2};
  } else if (s.m <= 8) {
    tile.size = {1, 8, s.bits == 32 ? 1 : s.bits == 16 && s.m > 1 ? 2 : 4};
    if (s.bits == 4 || (s.bits == 8 && s.m == 1)) tile.size[1] = 16;
  } else if (s.m <= 16) {
    tile.size = {2, 8, s.bits == 32 ? 1 : 2};
  } else {
    tile.size = {s.m <= 32 ? 2 : 1, 4, s.bits == 32 ? 1 : 2};
  }
  if (path == Path::kRows && s.x == DType::kF32 && s.m > 8) tile.size[1] = 2;
  return tile;
}

std::vector<Tile> further_tiles(const Problem& p, const RowsShape& s, Path path) {
  std::vector<Tile> list;
  for (const int nt : {1, 2, 4})
    for (const int warps : {4, 8, 16})
      for (const int depth : {1, 2, 3, 4, 6, 8})
        for (const int fourth : {1, 2, 4, 8}) {
          if (fourth > (path == Path::kRows ? 1 : path == Path::kFew ? 2 : 8)) break;
          Tile tile;
          tile.size = {nt, warps, depth, path == Path::kRows ? 0 : fourth, path == Path::kMany ? 3 : 0};
          const Blocking b = blocking(p, s, tile, path);
          // Registers: weights in flight, and sums (those of a group apart).
          const int registers = (path == Path::kRows ? nt * depth * s.bits : 0) + nt * b.mt * 4 * (s.scaled() ? 2 : 1);
          if (registers * warps <= 1280 && b.shared_bytes <= target().shared_bytes_per_block) list.push_back(tile);
        }
  return list;
}

TileCheck check_blocking(const Problem& p, const RowsShape& s, const Tile& tile, Path path) {
  TileCheck answer;
  const auto [nt, warps, depth, fourth, fifth, rest] = tile.size;
  const bool common = nt >= 1 && nt <= 4 && warps >= 1 && warps <= 16 && depth >= 1 && depth <= 16 && !rest;
  switch (path) {
    case Path::kRows:
      answer.unit = "tiles of 16 n, warps, steps of 64 k ahead";
      if (!common || fourth || fifth) answer.reason = "1 to 4 tiles, 1 to 16 warps, 1 to 16 steps are wanted";
      break;
    case Path::kFew:
      answer.unit = "tiles of 16 n, warps, copies of 2 KB ahead, start of the next launch";
      if (!common || fourth < 1 || fourth > 2 || fifth)
        answer.reason = "1 to 4 tiles, 1 to 16 warps, 1 to 16 copies, 1 (early) or 2 (late) are wanted";
      break;
    case Path::kMany:
      answer.unit = "tiles of 16 n of a warp, warps, copies of 2 KB ahead, blocks, chunks of x";
      if (!common || fourth < 1 || fourth > 8 || (fourth & (fourth - 1)) || fifth < 2 || fifth > 8)
        answer.reason = "1 to 4 tiles, 1 to 16 warps, 1 to 16 copies, 1, 2, 4 or 8 blocks, 2 to 8 chunks are wanted";
      break;
  }
  if (!answer.reason.empty()) return answer;
  const Blocking b = blocking(p, s, tile, path);
  answer.bytes = b.shared_bytes;
  answer.limit = target().shared_bytes_per_block;
  const int64_t columns = 16 * b.tiles();
  answer.padding_share = 1 - double(s.n) / double(std::max<int64_t>(1, (s.n + columns - 1) / columns * columns));
  return answer;
}

// A straight line through what was measured with the best tiles (one row: 4096 x 4096 and 11008 x 4096, where there are
// two), in ns and weights a ns:
//            rows.cu           few.cu
//   16 bits  1700, 2175        250, 2118
//   8 bits   2600, 3640        820, 3570
//   4 bits    700, 4520        320, 4275     zeros, minima, groups of 32: 2280 and 1530 (q4_k)
//   8 rows   1290, 2540, 3420  1850, 2500, 3100
// few.cu falls to 1490 where K is long (4096 x 16384). 32 rows: 15.4 us in rows.cu, 12.7 in many.cu, i8 as i4.
double blocking_ns(const Problem& p, const RowsShape& s, const Tile& tile, Path path, const Ceilings& c) {
  const Blocking b = blocking(p, s, tile, path);
  const bool few = path == Path::kFew, small_groups = lowers(p, s) || (s.scaled() && s.halves == 1);
  const int at = s.bits >= 16 ? 0 : s.bits == 8 ? 1 : 2;
  constexpr double kFixed[2][3] = {{1700, 2600, 700}, {250, 820, 320}};
  constexpr double kOneRow[2][3] = {{2175, 3640, 4520}, {2118, 3570, 4275}};
  constexpr double kEightRows[2][3] = {{1290, 2540, 3420}, {1850, 2500, 3100}};
  double fixed = kFixed[few][at], rate = (s.m == 1 ? kOneRow : kEightRows)[few][at], passes = 1;
  if (small_groups) rate = std::min(rate, few ? 1530.0 : 2280.0);
  if (few && s.k > 8192) rate = std::min(rate, 1490.0 * 16 / std::max(4, std::min(16, s.bits)));
  if (s.m > 8) {
    passes = double((s.m + 8 * b.mt - 1) / (8 * b.mt)) * b.mt / 4;
    fixed = path == Path::kMany ? 4000 : 2000;
    rate = path == Path::kMany ? 1950 : 1250;
  }
  if (s.bits == 32) rate /= 2;
  if (s.m > 1) rate /= x_parts(s) * w_parts(s) > 1 ? 1.5 : 1;
  const double blocks = double((s.tiles() + b.tiles() - 1) / b.tiles()) * b.cluster;
  const double filled = std::clamp(blocks / std::max(1, target().multiprocessors), 0.05, 1.0);
  const double memory = c.stream_ns(p.read_bytes(), p.write_bytes(), 1, MemoryLevel::kDram) + c.launch_ns.at(1, 1);
  return std::max(memory, fixed + passes * double(s.n * s.k) / (rate * filled));
}

}  // namespace ridgeline::cuda
