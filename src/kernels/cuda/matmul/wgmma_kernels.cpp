// cuda.matmul_wgmma and cuda.matmul_split_k: bf16 and f16 products on the matrix units of sm_90 (matmul/wgmma.cu).
#include <algorithm>

#include "core/integer.h"
#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul/matmul_kernels.h"
#include "kernels/cuda/matmul/product.h"
#include "kernels/cuda/mma_source.h"

namespace ridgeline::cuda {
namespace {

constexpr int kElement = 2;            // bytes
constexpr int kStep = 128 / kElement;  // of k
constexpr int kUnit = 16 / kElement;   // bulk copies want strides of 16 bytes
constexpr int kMapBatchAxes = 2;
constexpr int kMostStages = 16, kMostColumns = 256;
constexpr int kMostSums = 192;  // of a thread's 240 registers

PackedB packed_b(const Problem& p) { return {p.input(1).is_constant, kUnit}; }

// How a matrix lies for a bulk copy: which of its two axes is dense, and the stride of the other.
struct Lies {
  bool ok = false, along_k = true;
  int64_t stride = 0;
};
Lies lies(int64_t along_k, int64_t across, int64_t k, int64_t extent) {
  const auto stride = [](int64_t s, int64_t count, int64_t dense) { return count == 1 ? round_up(dense, kUnit) : s; };
  const auto good = [](int64_t s) { return s >= kUnit && s % kUnit == 0; };
  // Copies clip in words of 16 bytes: beyond a k that is no multiple of these stands what must not be multiplied.
  if ((along_k == 1 || k == 1) && k % kUnit == 0 && good(stride(across, extent, k)))
    return {true, true, stride(across, extent, k)};
  if ((across == 1 || extent == 1) && good(stride(along_k, k, extent)))
    return {true, false, stride(along_k, k, extent)};
  return {};
}
Lies lies_a(const Product& x) { return lies(x.a.column, x.a.row, x.k, x.m); }
Lies lies_b(const Product& x) { return lies(x.b.row, x.b.column, x.k, x.n); }

bool whole_units(const std::vector<int64_t>& strides) {
  return std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s % kUnit == 0; });
}

Support supports(const Problem& p) {
  if (const std::string why = missing(Capability::kWgmma); !why.empty()) return no("{}", why);
  const DType type = p.input(0).dtype;
  if (type != DType::kBF16 && type != DType::kF16) return no("operands are {}: bf16 or f16 are wanted", name(type));
  const DType out = p.output().dtype;
  if (out != DType::kBF16 && out != DType::kF16 && out != DType::kF32) return no("y is {}", name(out));
  const Product product = product_of(p, packed_b(p));
  if (!product.refusal.empty()) return no("{}", product.refusal);
  if (int(product.batch.size()) > kMapBatchAxes)
    return no("{} batch axes remain, at most {}", product.batch.size(), kMapBatchAxes);
  if (!lies_a(product).ok || !whole_units(product.a.batch)) return no("rows of a are not multiples of 16 bytes apart");
  // A packed B is filled up with zeros.
  if (!lies_b(product).ok || !whole_units(product.b.batch)) return no("rows of b are not multiples of 16 bytes apart");
  if (std::max({product.m, product.n, product.k}) >= int64_t(1) << 31) return no("an extent above 2^31");
  return yes();
}

// What a tile {rows, columns, parts of k} makes of a block. One block a multiprocessor, so that its ring is deep: two
// of half the depth, the next product's weights coming while this one ends, took 12.4 us at 64x4096x4096, one 11.2;
// rings of their own for both operands, that of A four deep, 13.8.
struct Block {
  int rows, columns, split;
  int consumers, row_blocks, a_rows, stages, round;
  bool staged;
  int64_t stage_bytes, b_ring, exchange, staging, barriers, shared, limit;
};
Block block_of(const Problem& p, const Product& product, const Tile& tile) {
  Block b{};
  b.rows = tile.size[0], b.columns = tile.size[1], b.split = std::max(1, tile.size[2]);
  b.consumers = b.rows == 64 ? 1 : 2;
  b.row_blocks = b.rows / 64 / b.consumers;
  // Of few rows no more are read than there are; what the matrix units read behind them is never stored.
  b.a_rows =
      b.rows == 64 && lies_a(product).along_k ? int(std::clamp<int64_t>(round_up(product.m, 16), 16, 64)) : b.rows;
  const int64_t a_bytes = int64_t(b.a_rows) * 128;
  const int64_t b_bytes = (lies_b(product).along_k ? b.columns : round_up(b.columns, 64)) * 128;
  b.stage_bytes = a_bytes + b_bytes;
  b.limit = target().shared_bytes_per_block;
  constexpr int64_t kBarriers = 16 * kMostStages;
  const int64_t part = b.columns / b.split;
  const int64_t exchanged = int64_t(b.split - 1) * b.rows * part * 4;
  b.staged = info(p.output().dtype).bits == 16;
  // Results are staged whole where three stages are left. Chunks of 64 columns and a fourth stage: 80.2 for 82.3 us at
  // 512x14336x4096, where weights come from memory, but 175.4 for 172.2 at 4096 cubed.
  for (b.round = b.row_blocks;; b.round = 1) {
    const int64_t staging = b.staged ? int64_t(b.consumers) * b.round * 64 * part * 2 : 0;
    b.stages = int(std::min<int64_t>(kMostStages, (b.limit - kBarriers - exchanged - staging) / b.stage_bytes));
    // The last row blocks of A may read behind their ring: B's follows.
    b.b_ring = b.stages * a_bytes;
    b.exchange = b.stages * b.stage_bytes;
    b.staging = b.exchange + exchanged;
    b.barriers = b.staging + staging;
    b.shared = b.barriers + kBarriers;
    if (b.stages >= 3 || b.round == 1) break;
  }
  return b;
}

int64_t tiles_of(const Product& x, const Block& b) {
  return ceil_div(x.m, b.rows) * ceil_div(x.n, b.columns) * x.batches();
}

// For each number of tiles in a row the narrowest width. Small problems know three widths, so that few kernels are
// compiled.
std::vector<int> widths(const Product& x, int most) {
  std::vector<int> list;
  if (x.m * x.n * x.batches() < int64_t(64) * 64 * target().multiprocessors) {
    for (int width = 64; width <= most; width *= 2)
      if (width == 64 || width / 2 < x.n) list.push_back(width);
    return list;
  }
  for (int width = std::min<int64_t>(most, round_up(x.n, 8)); width >= 64; width -= 8)
    if (list.empty() || ceil_div(x.n, width) > ceil_div(x.n, list.back()))
      list.push_back(width);
    else
      list.back() = width;
  if (list.empty()) list.push_back(64);
  return list;
}

std::vector<Tile> whole_tiles(const Problem& p) {
  const Product x = product_of(p, packed_b(p));
  std::vector<Tile> list;
  if (x.m > 64)
    for (const int width : widths(x, 256)) list.push_back({{128, width, 1}});
  if (x.m > 128)
    for (const int width : widths(x, 192))
      if (width <= 192) list.push_back({{256, width, 1}});
  for (const int width : widths(x, 256)) list.push_back({{64, width, 1}});
  return list;
}

std::vector<Tile> split_tiles(const Problem& p) {
  const Product x = product_of(p, packed_b(p));
  std::vector<Tile> list;
  for (const int split : {2, 4, 8}) {
    if (ceil_div(x.k, kStep) < split) break;
    for (const int width : {64, 128})
      if (width == 64 || x.n > 64) list.push_back({{64, width, split}});
    if (x.m > 64)
      for (const int width : {128, 256})
        if (width / 2 < x.n) list.push_back({{128, width, split}});
    if (x.m > 128 && x.n > 64) list.push_back({{256, 128, split}});
  }
  return list;
}

Support supports_split(const Problem& p) {
  if (Support s = supports(p); !s.ok) return s;
  const Product x = product_of(p, packed_b(p));
  if (ceil_div(x.k, kStep) < 2) return no("k is {}: too short to be split", x.k);
  const int64_t tiles = ceil_div(x.m, 64) * ceil_div(x.n, 64) * x.batches();
  if (tiles >= 16 * target().multiprocessors) return no("{} tiles fill the device without parts of k", tiles);
  return yes();
}

TileCheck check(const Problem& p, const Tile& tile, bool split) {
  TileCheck c;
  c.unit = "64x8";
  const auto [rows, columns, parts] = std::array{tile.size[0], tile.size[1], std::max(1, tile.size[2])};
  if (rows < 64 || rows % 64 || columns < 16 || columns % 8 || std::max(rows, columns) > 4096) {
    c.reason = "rows of a tile are a multiple of 64, columns of 8, 16 at least, neither above 4096";
    return c;
  }
  // Two stages at least have to fit into shared memory, and the sums into the registers of those who multiply.
  const Product x = product_of(p, packed_b(p));
  const Block b = block_of(p, x, tile);
  c.limit = b.limit;
  c.bytes = b.shared + std::max(0, 2 - b.stages) * b.stage_bytes;
  const int64_t sums = int64_t(rows) * columns * 4, registers = int64_t(b.consumers) * 128 * kMostSums * 4;
  if (c.over() == 0 && sums > registers) c.bytes = sums, c.limit = registers;
  if (c.over() > 0) return c;
  if (rows != 64 && rows != 128 && rows != 256)
    c.reason = "rows of a tile are 64, 128 or 256";
  else if (columns > kMostColumns)
    c.reason = fmt::format("columns of a tile are at most {}, an instruction's", kMostColumns);
  else if (columns % (8 * parts))
    c.reason = fmt::format("each of {} parts finishes whole blocks of 8 columns", parts);
  else if (split ? parts != 2 && parts != 4 && parts != 8 : parts != 1)
    c.reason = split ? "parts of k are 2, 4 or 8" : "cuda.matmul_split_k splits k";
  if (!c.reason.empty()) return c;
  if (split && ceil_div(x.k, kStep) < parts) {
    c.reason = fmt::format("k of {} has no {} parts", x.k, parts);
    return c;
  }
  c.padding_share = 1 - double(x.m) * double(x.n) /
                            (double(round_up(std::max<int64_t>(x.m, 1), rows)) *
                             double(round_up(std::max<int64_t>(x.n, 1), columns)));
  return c;
}
TileCheck check_whole(const Problem& p, const Tile& tile) { return check(p, tile, false); }
TileCheck check_split(const Problem& p, const Tile& tile) { return check(p, tile, true); }

// Floor: FLOPs at some 800 TFLOP/s, weights at 4.5 TB/s. Measured on an H200 beside cuBLASLt (us; tile; its time):
// 4096x4096x4096 172.2, 128x256 (172.8); 4096x14336x4096 585, 256x176 (596; 128x256 602); 1024x11008x4096 117.7,
// 256x168 (117.2; 256x176 119.0, 128x168 121.3); 512x14336x4096 82.3, 128x224 (84.1); 256x4096x4096 16.2-17.0, 128x64
// (16.1; in two parts 128x128 16.6-17.0); 64x4096x4096 11.2, 64x64 in two parts (11.9; whole 64x32 14.3);
// 32x4096x4096 10.5 (12.2).
//
// A wave lasts as long as a tile: its steps, its start and its end. A step takes what the matrix units need at the peak
// that the power cap leaves (0.87 of the burst), more where shared memory is short (narrow tiles: 256x128 lost 7 % to
// 128x256 at 4096 cubed), what comes in at 117 bytes/ns, and 170 ns at least. Idle multiprocessors make the others
// faster, and small tiles (more bytes moved) slower: both factors are fitted to widths of 168 to 256 at N 11008.
double estimate(const Problem& p, const Tile& tile, const Ceilings& c) {
  const Product x = product_of(p, packed_b(p));
  const Block b = block_of(p, x, tile);
  const int sms = target().multiprocessors;
  const double peak = c.compute_gop_s(p.input(0).dtype).one / sms * 0.87;
  const double flops = 2.0 * b.rows * b.columns * kStep, area = double(b.rows) * b.columns;
  // Bytes a clock from and into shared memory while the matrix units are busy; 128 are there.
  const double shared = (2048 + 32.0 * b.columns) / (b.columns / 2.0) + double(b.stage_bytes) / (area / 32);
  const double step_ns =
      std::max({flops / peak * std::clamp(shared / 134, 1.0, 1.2), double(b.stage_bytes) / 117, 170.0});
  const double steps = double(ceil_div(ceil_div(x.k, kStep), b.split));
  const int64_t blocks = tiles_of(x, b) * b.split;
  // Pairs fit anywhere. Of clusters of four 32 were too many for one wave (32 us where 14 were expected).
  const int64_t at_once = b.split <= 2 ? sms / b.split * b.split : b.split == 4 ? 64 : 48;
  const double waves = double(ceil_div(blocks, at_once));
  const double busy = double(blocks) / (waves * double(at_once));
  const double moved = 1 + 8 * (1.0 / b.rows + 1.0 / b.columns - 1.0 / 128 - 1.0 / 256);
  const double power = (0.6 + 0.4 * busy) * std::clamp(moved, 0.97, 1.05);
  double end_ns = 300 + area / 50;
  if (b.split > 1) end_ns += 300 + area * 4 * (b.split - 1) / b.split / 16;
  const double start_ns = 1750 + c.launch_ns.at(1, 1);
  // In a model weights come from memory, whatever their size.
  const double bytes = c.stream_ns(p.read_bytes(), p.write_bytes(), 1, MemoryLevel::kDram);
  return start_ns + std::max(waves * (steps * step_ns * power + end_ns), bytes + waves * end_ns);
}

// For what bulk copies cannot read (a base that is no multiple of 16 bytes) and for k = 0: the same product without
// matrix units, in the same code object. It knows the packed weights too.
std::string fallback_source(const Product& x) {
  return fmt::format(
      "#define BM 64\n#define BN 64\n#define BK 16\n#define TM 4\n#define TN 4\n#define BLOCKS 2\n"
      "#define A_ALONG_K {}\n#define B_ALONG_N {}\n#define ZERO_POINTS 0\n#define SPLITS 0\n#define DEEP 1\n"
      "namespace fallback {{\nusing Value = float;\nusing Sum = float;\n{}\n}}\n"
      "#undef BM\n#undef BN\n#undef BLOCKS\n#undef A_ALONG_K\n",
      int(lies_a(x).along_k), int(!lies_b(x).along_k), embedded("matmul/cores.cu"));
}
int64_t fallback_blocks(const Product& x) { return ceil_div(x.m, 64) * ceil_div(x.n, 64) * x.batches(); }

Source source(const Problem& p, const Tile& tile) {
  const Product x = product_of(p, packed_b(p));
  const Block b = block_of(p, x, tile);
  const bool a_along_k = lies_a(x).along_k, b_along_k = lies_b(x).along_k;
  Source source;
  source.file = "matmul/wgmma.cu";
  source.entry = "matmul_wgmma";
  source.more_entries = {"matmul_cores"};
  source.program = product_source(p, x) + fallback_source(x) +
                   wgmma_function(p.input(0).dtype, b.columns, "wgmma", a_along_k, b_along_k);
  const int sums = b.row_blocks * b.columns / 2;
  const auto define = [&](const char* name, int64_t value) {
    source.program += fmt::format("#define {} {}\n", name, value);
  };
  define("BM", b.rows);
  define("BN", b.columns);
  define("STAGES", b.stages);
  define("A_ROWS", b.a_rows);
  define("CONSUMERS", b.consumers);
  define("MW", b.row_blocks);
  define("SPLIT", b.split);
  define("ROUND", b.round);
  define("A_ALONG_K", a_along_k);
  define("B_ALONG_K", b_along_k);
  define("B_CONSTANT", p.input(1).is_constant);
  define("BATCH", int64_t(x.batch.size()));
  define("EVEN_N", x.n % 2 == 0);
  // Three warpgroups start with 168 registers a thread; with 176 sums and more the last ones count.
  define("PRODUCER_REGISTERS", b.consumers == 1 ? 0 : sums > 150 ? 24 : 40);
  define("CONSUMER_REGISTERS", b.consumers == 1 ? 0 : sums > 150 ? 240 : 232);
  define("STAGED", b.staged);
  define("B_RING", b.b_ring);
  define("EXCHANGE", b.exchange);
  define("STAGING", b.staging);
  define("BARRIERS", b.barriers);
  source.shared_bytes = b.shared;
  return source;
}

struct alignas(64) Maps {
  TensorMap a, b;
  TensorMap y[4];
};
struct Geometry {
  uint32_t rows, columns, tiles, group, bulk_store, a_batched, b_batched, pad;
};

uint32_t batched(const Walk& w) {
  uint32_t mask = 0;
  for (size_t i = 0; i < w.batch.size(); ++i)
    if (w.batch[w.batch.size() - 1 - i] != 0) mask |= 1u << i;
  return mask;
}

// A matrix of `inner` dense elements and `outer` rows, and the batch above it; what is broadcast has an extent of 1.
TensorMap matrix_map(MapType type, const void* address, int64_t inner, int64_t outer, int64_t stride,
                     const std::vector<int64_t>& extents, const std::vector<int64_t>& batch, int box_inner,
                     int box_outer, int swizzle) {
  std::vector<int64_t> sizes{inner, outer}, strides{stride * kElement};
  std::vector<int> box{box_inner, box_outer};
  for (size_t i = extents.size(); i-- > 0;) {
    sizes.push_back(batch[i] != 0 ? extents[i] : 1);
    strides.push_back(batch[i] != 0 ? batch[i] * kElement : 16);
    box.push_back(1);
  }
  return tensor_map(type, int(sizes.size()), address, sizes.data(), strides.data(), box.data(), swizzle);
}

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const Product x = product_of(p, packed_b(p));
  if (x.m == 0 || x.n == 0 || x.batches() == 0) return;
  const LoadedKernel& loaded = call.state_as<LoadedKernel>();
  std::vector<uint64_t> words = argument_words(x, buffers);
  if (x.k == 0 || !aligned(buffers.inputs[0]) || !aligned(buffers.inputs[1])) {
    void* partial = nullptr;
    uint32_t split = 1;
    void* parameters[] = {words.data(), &partial, &split};
    return launch(loaded.more.at(0), {fallback_blocks(x)}, 256, stream, parameters);
  }
  const Block b = block_of(p, x, call.tile);
  const MapType type = p.input(0).dtype == DType::kBF16 ? MapType::kBF16 : MapType::kF16;
  const Lies a_lies = lies_a(x), b_lies = lies_b(x);
  Maps maps;
  maps.a = a_lies.along_k
               ? matrix_map(type, buffers.inputs[0], x.k, x.m, a_lies.stride, x.batch, x.a.batch, 64, b.a_rows, 128)
               : matrix_map(type, buffers.inputs[0], x.m, x.k, a_lies.stride, x.batch, x.a.batch, 64, 64, 128);
  maps.b = b_lies.along_k
               ? matrix_map(type, buffers.inputs[1], x.k, x.n, b_lies.stride, x.batch, x.b.batch, 64, b.columns, 128)
               : matrix_map(type, buffers.inputs[1], x.n, x.k, b_lies.stride, x.batch, x.b.batch, 64, 64, 128);
  const int64_t y_row = x.m == 1 ? round_up(x.n, kUnit) : x.y.row;
  const bool bulk = info(p.output().dtype).bits == 16 && x.y.column == 1 && x.n % kUnit == 0 &&
                    aligned(buffers.outputs[0]) && y_row >= kUnit && y_row % kUnit == 0 && whole_units(x.y.batch);
  for (int i = 0; i < 4; ++i) {
    const int width = 64 >> i;
    if (!bulk) maps.y[i] = maps.a;
    if (bulk)
      maps.y[i] = matrix_map(type, buffers.outputs[0], x.n, x.m, y_row, x.batch, x.y.batch, width, 64,
                             width == 8 ? 0 : 2 * width);
  }
  const auto rows = uint32_t(ceil_div(x.m, b.rows)), columns = uint32_t(ceil_div(x.n, b.columns));
  const int64_t tiles = tiles_of(x, b);
  const Geometry geometry{rows, columns,      uint32_t(tiles), b.rows == 256 ? 8u : 16u,
                          bulk, batched(x.a), batched(x.b),    0};
  const int threads = b.consumers == 1 ? 160 : 384;
  const int64_t grid = b.split > 1 ? tiles * b.split : std::min<int64_t>(tiles, target().multiprocessors);
  void* parameters[] = {&maps, words.data(), const_cast<Geometry*>(&geometry)};
  launch(loaded, {grid}, threads, stream, parameters, {.dependent = true});
}

Packing packing(const Problem& p, const Tile&, int input) {
  return input == 1 && p.input(1).is_constant ? packing_of(p, packed_b(p)) : Packing{};
}
void pack(const Problem& p, const Tile&, int input, const Tensor& source, void* packed) {
  if (input == 1) pack_b(p, packed_b(p), source, packed);
}

constexpr Kernel wgmma_kernel(std::string_view op) {
  return {.name = "cuda.matmul_wgmma",
          .op = op,
          .device = DeviceKind::kCuda,
          .supports = supports,
          .tiles = whole_tiles,
          .check_tile = check_whole,
          .estimate = estimate,
          .packing = packing,
          .pack = pack,
          .source = source,
          .launch = run};
}
constexpr Kernel split_kernel(std::string_view op) {
  return {.name = "cuda.matmul_split_k",
          .op = op,
          .device = DeviceKind::kCuda,
          .supports = supports_split,
          .tiles = split_tiles,
          .check_tile = check_split,
          .estimate = estimate,
          .packing = packing,
          .pack = pack,
          .source = source,
          .launch = run};
}

}  // namespace

constinit const Kernel kMatMulWgmma[3] = {wgmma_kernel("MatMul"), wgmma_kernel("FusedMatMul"), wgmma_kernel("Gemm")};
constinit const Kernel kMatMulSplitK[3] = {split_kernel("MatMul"), split_kernel("FusedMatMul"), split_kernel("Gemm")};

}  // namespace ridgeline::cuda
