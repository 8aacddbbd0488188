// cuda.matvec (MatMul, FusedMatMul, Gemm), cuda.matvec_low and cuda.matmul_low (LowBitMatMul): rows.cu on a problem.
#include <algorithm>
#include <bit>

#include "kernels/cuda/device.h"
#include "kernels/cuda/matvec/matvec_kernels.h"
#include "kernels/cuda/matvec/rows_shape.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

constexpr int64_t kMostRows = 64;  // of 16-bit products: more belong to kernels with tiles of both sides
constexpr int64_t kFewRows = 8;    // of the instruction

// rows.cu runs at any level; from sm_90 few.cu takes up to 8 rows and many.cu more, where their shared memory suffices.
enum class Path : uint8_t { kRows, kFew, kMany };

// What a block does. tile.size is {tiles of 16 n (many.cu: of a warp), warps, steps of 64 k in flight (few.cu and
// many.cu: copies of 2 KB), blocks that share out k, chunks of 256 of x
// (many.cu alone)}.
struct Blocking {
  Path path = Path::kRows;
  int nt = 1, warps = 8, depth = 2, cluster = 1;
  int mt = 1, x_rows = 1, x_chunk = 256, buffers = 2;                     // follow from the rows
  int64_t room_groups = 1, scale_room = 0, warp_bytes = 0, x_stages = 2;  // few.cu and many.cu
  int ahead = 1, resident = 1, min_blocks = 1;                            // few.cu
  int64_t shared_bytes = 0;
  int64_t tiles() const { return int64_t(nt) * (path == Path::kMany ? warps : 1); }  // of a block
};

int x_bytes(const RowsShape& s) { return info(s.x).bits / 8; }

// The instruction's type is f16 where both sides are exact in it; else bf16, and what has more bits comes in parts.
bool in_f16(const RowsShape& s) { return s.x == DType::kF16 && s.w != DType::kBF16 && !s.round_x; }
int x_parts(const RowsShape& s) {
  if (in_f16(s) || s.x == DType::kBF16 || s.round_x) return 1;
  return s.x == DType::kF16 ? 2 : 3;
}
int w_parts(const RowsShape& s) { return s.w == DType::kF32 ? 3 : s.w == DType::kF16 && !in_f16(s) ? 2 : 1; }

// Shared memory of few.cu and many.cu: for each warp its copies under way, the scales of its part of k, barriers; a row
// of x or, of all warps, chunks of all rows.
void place_bulk(const Problem& p, const RowsShape& s, Blocking& b) {
  const bool many = b.path == Path::kMany;
  const int parts = many ? b.cluster : b.warps;
  if (s.scaled() && (s.halves > 0 || p.has(3) || p.has(4))) {
    const int64_t steps = (s.steps() + parts - 1) / parts;
    if (s.halves > 0)
      b.room_groups =
          int64_t(std::bit_ceil(uint64_t(std::min(s.groups, (2 * steps - 1 + s.halves - 1) / s.halves + 1))));
    for (int i = 2; i < p.op_inputs; ++i) {
      if (!p.has(i)) continue;
      const int64_t each = s.groups / p.input(i).shape()[1];
      b.scale_room += ((b.room_groups - 1 + each - 1) / each + 1) * 16 * info(p.input(i).dtype).bits / 8;
    }
    b.scale_room *= b.nt;
  }
  b.warp_bytes = b.depth * b.nt * int64_t(s.bits == 32 ? 4096 : 2048) + b.scale_room + (b.depth + 2) * 8;
  if (!many) b.warp_bytes += b.scale_room + int64_t(256) * x_bytes(s);
  b.warp_bytes = (b.warp_bytes + 127) / 128 * 128;
  if (many) {
    const int64_t x_stage = int64_t(8) * b.mt * (256 * x_bytes(s) + 64);
    b.shared_bytes = std::max(b.warps * b.warp_bytes + b.x_stages * x_stage, b.tiles() * b.mt * 512);
  } else {
    b.shared_bytes = b.warps * (b.warp_bytes + (s.m == 1 ? 2 : 16) * (16 * b.nt + 4) * 4);
    // Rounds of x that a lane keeps in registers: of 16 bytes each, or of 8 times as much where it holds 8 rows.
    const int64_t rounds = std::max<int64_t>(1, ((s.steps() + b.warps - 1) / b.warps + 3) / 4);
    const bool wide = x_bytes(s) == 4;
    const int most = s.m == 1 ? 4 : wide ? 1 : 2;
    b.resident = rounds <= most;
    b.ahead = b.resident ? int(rounds) : std::min(most, 2);
    b.min_blocks = s.m == 1 || (b.warps <= 8 && !wide) ? 2 : 1;
  }
}

Blocking blocking(const Problem& p, const RowsShape& s, const Tile& tile, Path path) {
  Blocking b;
  b.path = path;
  b.nt = tile.size[0], b.warps = tile.size[1], b.depth = tile.size[2], b.cluster = std::max(1, tile.size[3]);
  b.x_stages = std::max(2, tile.size[4]);
  b.mt = s.m <= 8 ? 1 : s.m <= 16 ? 2 : s.m <= 32 ? 4 : 8;
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

Tile best_tile(const Problem& p, const RowsShape& s, Path path) {
  Tile tile;
  if (path == Path::kFew) {
    // Half the shared memory of a multiprocessor in copies: the other half is the next launch's.
    // 16 warps have 64 registers each, which zeros and minima overflow.
    const bool lower = s.scaled() && (p.has(3) || p.has(4));
    const int warps = s.m == 1 && !lower && (s.scaled() || s.steps() > 128) && s.x != DType::kF32 ? 16 : 8;
    tile.size = {1, warps, s.bits == 32 ? 3 : warps == 16 ? 3 : 6};
  } else if (path == Path::kMany) {
    // As many blocks as share out k as fill the card, each with 4 copies at least.
    const int64_t columns = (s.tiles() + 7) / 8 * ((s.m + 63) / 64);
    int cluster = 1;
    while (cluster < 8 && columns * cluster * 6 < target().multiprocessors * 5 && s.steps() / cluster >= 16)
      cluster *= 2;
    tile.size = {1, 8, s.bits == 32 ? 2 : s.m <= 32 ? 4 : 3, cluster, s.m * x_bytes(s) <= 64 ? 4 : 2};
  } else if (s.m <= 8) {
    tile.size = {1, s.bits == 4 ? 16 : 8, s.bits == 32 ? 1 : s.bits == 16 ? 2 : 4};
  } else if (s.m <= 16) {
    tile.size = {2, 8, 2};
  } else {
    tile.size = {s.m <= 32 ? 2 : 1, 4, 2};
  }
  if (path == Path::kRows && s.x == DType::kF32 && s.m > 8) tile.size[1] = 2;
  if (path == Path::kRows && s.bits == 32) tile.size[2] = 1;
  return tile;
}

Path path_of(const Problem& p, const RowsShape& s) {
  if (target().sm < 90) return Path::kRows;
  const Path path = s.m <= kFewRows ? Path::kFew : Path::kMany;
  return blocking(p, s, best_tile(p, s, path), path).shared_bytes <= target().shared_bytes_per_block ? path
                                                                                                     : Path::kRows;
}

Blocking blocking(const Problem& p, const RowsShape& s, const Tile& tile) {
  return blocking(p, s, tile, path_of(p, s));
}
Tile best_tile(const Problem& p, const RowsShape& s) { return best_tile(p, s, path_of(p, s)); }

std::vector<Tile> tiles(const Problem& p) { return {best_tile(p, rows_shape(p))}; }

std::vector<Tile> sweep(const Problem& p) {
  const RowsShape s = rows_shape(p);
  std::vector<Tile> list;
  const Path path = path_of(p, s);
  for (const int nt : {1, 2, 4})
    for (const int warps : {4, 8, 16})
      for (const int depth : {1, 2, 3, 4, 6, 8})
        for (const int cluster : {1, 2, 4, 8}) {
          if (path != Path::kMany && cluster > 1) break;
          Tile tile;
          tile.size = {nt, warps, depth, path == Path::kMany ? cluster : 0, path == Path::kMany ? 3 : 0};
          const Blocking b = blocking(p, s, tile, path);
          // Registers: weights in flight, and sums (those of a group apart).
          const int registers = (path == Path::kRows ? nt * depth * s.bits : 0) + nt * b.mt * 4 * (s.scaled() ? 2 : 1);
          if (registers * warps <= 1280 && b.shared_bytes <= target().shared_bytes_per_block) list.push_back(tile);
        }
  return list;
}

TileCheck check(const Problem& p, const Tile& tile) {
  const RowsShape s = rows_shape(p);
  TileCheck answer;
  const auto [nt, warps, depth, cluster, x_stages, rest] = tile.size;
  const bool many = path_of(p, s) == Path::kMany;
  answer.unit = many ? "tiles of 16 n of a warp, warps, copies ahead, blocks, chunks"
                     : "tiles of 16 n, warps, steps of 64 k ahead";
  if (nt < 1 || nt > 4 || warps < 1 || warps > 16 || depth < 1 || depth > 16 || rest ||
      (many ? cluster < 1 || cluster > 8 || (cluster & (cluster - 1)) || x_stages < 2 || x_stages > 8
            : cluster || x_stages)) {
    answer.reason = many ? "1 to 4 tiles, 1 to 16 warps, 1 to 16 copies, 1, 2, 4 or 8 blocks, 2 to 8 chunks are wanted"
                         : "1 to 4 tiles, 1 to 16 warps, 1 to 16 steps are wanted";
    return answer;
  }
  const Blocking b = blocking(p, s, tile);
  answer.bytes = b.shared_bytes;
  answer.limit = target().shared_bytes_per_block;
  const int64_t columns = 16 * b.tiles();
  answer.padding_share = 1 - double(s.n) / double(std::max<int64_t>(1, (s.n + columns - 1) / columns * columns));
  return answer;
}

Support fits(const Problem& p, const RowsShape& s) {
  if (!s.refusal.empty()) return no("{}", s.refusal);
  const int64_t bytes = blocking(p, s, best_tile(p, s)).shared_bytes, limit = target().shared_bytes_per_block;
  if (bytes > limit) return no("{} bytes of shared memory, {} there are", bytes, limit);
  if ((s.m + 7) / 8 > 65535) return no("{} rows", s.m);
  if (p.outputs.size() != 1) return no("more than one result");
  return yes();
}

Support supports_product(const Problem& p) {
  const RowsShape s = rows_of_product(p);
  if (s.refusal.empty() && s.m > kMostRows) return no("{} rows, at most {}", s.m, kMostRows);
  return fits(p, s);
}
Support supports_low_few(const Problem& p) {
  const RowsShape s = rows_of_low_bit(p);
  if (s.refusal.empty() && s.m > kFewRows) return no("{} rows, at most {}", s.m, kFewRows);
  return fits(p, s);
}
Support supports_low_many(const Problem& p) {
  const RowsShape s = rows_of_low_bit(p);
  if (s.refusal.empty() && s.m <= kFewRows) return no("{} rows, more than {} are wanted", s.m, kFewRows);
  return fits(p, s);
}

// The weights come from memory once, or from the second cache again for each 64 rows; each block reads its rows of x
// from there. The start and the end of a launch are about a microsecond that nothing hides.
double estimate(const Problem& p, const Tile& tile, const Ceilings& c) {
  const RowsShape s = rows_shape(p);
  const Blocking b = blocking(p, s, tile);
  const double passes = double((s.m + 8 * b.mt - 1) / (8 * b.mt)), blocks = double(s.tiles()) / double(b.tiles());
  const double memory = c.stream_ns(p.read_bytes(), p.write_bytes(), 1, MemoryLevel::kDram);
  const double again = (passes - 1) * double(s.weight_bytes());
  const double x = blocks * double(s.m * s.k * x_bytes(s));
  const double cache = (again + x + double(s.weight_bytes())) / std::max(1.0, c.read_gb_s[1].at(1, 1));
  // mma.sync reaches some 60 % of the roof, and pads the rows to 8.
  const double flops = 2.0 * passes * 8 * b.mt * double(s.n * s.k) * x_parts(s) * w_parts(s);
  const double compute = flops / (0.5 * std::max(1.0, c.compute_gop_s(DType::kBF16).at(1, 1)));
  const double unpack = s.bits == 16 ? 0 : passes * double(s.n * s.k) * 1.6 / 13000;
  return std::max({memory, cache, compute + unpack}) + c.launch_ns.at(1, 1) + 1000;
}

Packing packing(const Problem& p, const Tile&, int input) {
  const RowsShape s = rows_shape(p);
  if (input == 1)
    return {fmt::format("rows16 bits={} n={} k={} steps={},{}", s.bits, s.n, s.k, s.w_row, s.w_k), s.weight_bytes()};
  if (input < 1 || input >= p.op_inputs || !s.scaled()) return {};
  const Operand& operand = p.input(input);
  return {fmt::format("rows16 pairs n={} groups={} {}", s.n, operand.shape()[1], name(operand.dtype)),
          row_scale_bytes(s, operand)};
}

void pack(const Problem& p, const Tile&, int input, const Tensor& source, void* packed) {
  const RowsShape s = rows_shape(p);
  if (input == 1)
    pack_rows(s, source, packed);
  else
    pack_row_scales(s, source, packed);
}

Source source(const Problem& p, const Tile& tile) {
  const RowsShape s = rows_shape(p);
  const Blocking b = blocking(p, s, tile);
  Source source;
  source.entry = b.path == Path::kFew ? "few" : b.path == Path::kMany ? "many" : "rows";
  source.file = "matvec/" + source.entry + ".cu";
  source.program = epilogue_source(p, s.row_axes).code;
  source.shared_bytes = b.shared_bytes;
  const auto define = [&](std::string_view name, auto value) {
    source.program += fmt::format("#define {} {}\n", name, value);
  };
  define("NT", b.nt), define("WARPS", b.warps);
  if (b.path == Path::kRows) {
    define("MT", b.mt), define("DEPTH", b.depth), define("X_ROWS", b.x_rows), define("X_CHUNK", b.x_chunk);
  } else {
    define("STAGES", b.depth), define("ROOM_GROUPS", b.room_groups), define("SCALE_ROOM", b.scale_room);
    define("WARP_BYTES", b.warp_bytes);
  }
  if (b.path == Path::kFew) {
    define("SPREAD", int(s.m == 1)), define("AHEAD", b.ahead), define("RESIDENT", b.resident);
    define("MIN_BLOCKS", b.min_blocks);
  }
  if (b.path == Path::kMany) define("MT", b.mt), define("CLUSTER", b.cluster), define("X_STAGES", b.x_stages);
  source.program += fmt::format("using XType = {};\n", storage_type(s.x));
  define("MMA_F16", int(in_f16(s)));
  define("X_PARTS", x_parts(s)), define("W_PARTS", w_parts(s)), define("W_BITS", s.bits);
  define("X_DIRECT", int(in_f16(s) || s.x == DType::kBF16));
  define("HAS_C", int(s.c_input >= 0));
  if (s.c_input >= 0) source.program += fmt::format("using CType = {};\n", storage_type(p.input(s.c_input).dtype));
  const auto finish = [&] {
    source.program += embedded("matvec/operands.cu");
    if (b.path != Path::kRows) source.program += embedded("matvec/bulk.cu");
    return source;
  };
  if (!s.scaled()) return finish();
  const auto type = [&](std::string_view name, int input) {
    source.program += fmt::format("using {} = {};\n", name, storage_type(p.input(input).dtype));
  };
  define("W_OFFSET", s.bits == 4 && !p.has(3) && !p.has(4) ? 8 : 0);
  define("HALVES", s.halves), define("GROUPS", s.groups);
  define("HAS_ZERO", int(p.has(3))), define("HAS_MIN", int(p.has(4)));
  define("HAS_SUPER", int(p.has(5))), define("HAS_SUPER_MIN", int(p.has(6)));
  type("ScaleType", 2);
  if (p.has(4)) type("MinType", 4);
  if (p.has(5)) type("SuperType", 5), define("SUPER_GROUPS", p.input(5).shape()[1]);
  if (p.has(6)) type("SuperMinType", 6), define("SUPER_MIN_GROUPS", p.input(6).shape()[1]);
  return finish();
}

struct Arguments {
  uint64_t x = 0, w = 0, scale = 0, zero = 0, low = 0, super_scale = 0, super_low = 0, y = 0, c = 0;
  int64_t x_row, x_k, y_row, y_column, c_row, c_column;
  int64_t m, n, k, tiles;
  float alpha, beta;
  int32_t steps, buffers, aligned, none;
};

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const RowsShape s = rows_shape(p);
  const Blocking b = blocking(p, s, call.tile);
  const auto address = [&](int input) {
    return input < p.op_inputs && p.has(input) ? reinterpret_cast<uint64_t>(buffers.inputs[input]) : 0;
  };
  Arguments a{};
  a.x = address(0), a.w = address(1);
  if (s.scaled())
    a.scale = address(2), a.zero = address(3), a.low = address(4), a.super_scale = address(5), a.super_low = address(6);
  a.y = reinterpret_cast<uint64_t>(buffers.outputs[0]);
  if (s.c_input >= 0) a.c = address(s.c_input);
  a.x_row = s.x_row, a.x_k = s.x_k, a.y_row = s.y_row, a.y_column = s.y_column, a.c_row = s.c_row;
  a.c_column = s.c_column, a.m = s.m, a.n = s.n, a.k = s.k, a.steps = int32_t(s.steps()), a.buffers = b.buffers,
  a.tiles = s.tiles();
  a.alpha = float(s.alpha), a.beta = float(s.beta);
  a.aligned = s.x_k == 1 && a.x % 16 == 0 && (s.m == 1 || s.x_row * x_bytes(s) % 16 == 0);
  const std::vector<uint64_t> words = epilogue_words(p, s.row_axes, buffers.inputs);
  void* parameters[] = {&a, const_cast<uint64_t*>(words.data())};
  int64_t columns = (s.tiles() + b.tiles() - 1) / b.tiles() * b.cluster;
  if (b.path == Path::kFew) columns = std::min<int64_t>(columns, target().multiprocessors);
  const int64_t rows = (s.m + 8 * b.mt - 1) / (8 * b.mt);
  launch(call.state_as<LoadedKernel>(), {columns, rows}, b.warps * 32, stream, parameters, {.dependent = true});
}

constexpr Kernel kernel(std::string_view name, std::string_view op, Support (*supports)(const Problem&)) {
  return {.name = name,
          .op = op,
          .device = DeviceKind::kCuda,
          .supports = supports,
          .tiles = tiles,
          .sweep = sweep,
          .check_tile = check,
          .estimate = estimate,
          .packing = packing,
          .pack = pack,
          .source = source,
          .launch = run};
}

}  // namespace

constinit const Kernel kMatVec[3] = {kernel("cuda.matvec", "MatMul", supports_product),
                                     kernel("cuda.matvec", "FusedMatMul", supports_product),
                                     kernel("cuda.matvec", "Gemm", supports_product)};
constinit const Kernel kMatVecLow = kernel("cuda.matvec_low", "LowBitMatMul", supports_low_few);
constinit const Kernel kMatMulLow = kernel("cuda.matmul_low", "LowBitMatMul", supports_low_many);

}  // namespace ridgeline::cuda
