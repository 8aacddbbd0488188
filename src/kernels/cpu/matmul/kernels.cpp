// cpu.matvec, cpu.matmul_packed, cpu.matmul_split_k, cpu.matmul: the contraction engine as kernels of MatMul,
// FusedMatMul and Gemm.
#include "kernels/cpu/matmul/kernels.h"

#include <algorithm>

#include "core/integer.h"
#include "kernels/cpu/matmul/blocking.h"
#include "kernels/cpu/matmul/micro.h"
#include "kernels/cpu/matmul/product.h"

namespace ridgeline::cpu {
namespace {

Support answer(const Product& product) { return product.refusal.empty() ? yes() : no("{}", product.refusal); }

Support supports_any(const Problem& problem) { return answer(product_of(problem, false)); }

Support supports_packed(const Problem& problem) {
  if (!problem.input(1).is_constant) return no("b is no constant, so it cannot be packed ahead");
  return answer(product_of(problem, true));
}

Support supports_matvec(const Problem& problem) {
  if (Support s = supports_packed(problem); !s.ok) return s;
  const Product product = product_of(problem, true);
  if (product.gemm.m > kMaxMatvecRows) return no("{} rows, at most {}", product.gemm.m, kMaxMatvecRows);
  if (product.gemm.a.k_stride != 1) return no("a is strided along k by {}", product.gemm.a.k_stride);
  return yes();
}

/// Arithmetic of the slowest thread at the share of the peak that its tiles reach, or the bytes, whichever is longer.
/// `sums_per_row`: FMAs in flight from one row of a panel.
double product_ns(const Problem& problem, const Product& product, const Blocking& cut, const Ceilings& ceilings,
                  double sums_per_row) {
  const Gemm& g = product.gemm;
  const int64_t lanes = micro_kernels().lanes, most = micro_kernels().max_rows;
  const int64_t task_rows = ceil_div(std::max<int64_t>(g.m, 1), cut.parts_rows);
  const int64_t panels = ceil_div(round_up(g.n, panel_width()) / panel_width(), cut.parts_cols);
  const int64_t task_cols = std::min(round_up(g.n, lanes), panels * panel_width());
  const double k = double(ceil_div(g.k, cut.parts_k));
  const double rows = double(task_rows) / double(ceil_div(task_rows, most));
  // Two multiply-adds a cycle of four cycles' latency; a tile's start and store take some 12 steps of k.
  const double efficiency = 0.95 * std::min(1.0, rows * sums_per_row / 8) * (k + 1) / (k + 13);
  const double flops = 2.0 * double(ceil_div(cut.tasks, cut.threads)) * double(task_rows) * double(task_cols) * k;
  const double compute =
      ceilings.compute_ns(DType::kF32, int64_t(flops) * cut.threads, cut.threads) / std::max(efficiency, 0.02);
  // Panels are whole: 4 columns are read as 32.
  const int64_t padding =
      product.constant_b ? product.b_matrices * (round_up(g.n, panel_width()) - g.n) * g.k * int64_t(sizeof(float)) : 0;
  // In a model the weights come from memory whatever their size: with 4 of 32 columns (8x98x4) reading a panel cost 1.9
  // times the time of B as it is.
  // Threads that share its columns each read them: 14x32x65536 on two threads took 1.67 ms, k cut in two 0.72.
  const int64_t weights = problem.input(1).is_constant ? (problem.input(1).bytes() + padding) * cut.parts_rows : 0;
  return std::max({compute, ceilings.stream_ns(problem.read_bytes() + padding, problem.write_bytes(), cut.threads),
                   ceilings.stream_ns(weights, 0, cut.threads, MemoryLevel::kDram)});
}

double packed_ns(const Problem& problem, const Product& product, const Ceilings& ceilings) {
  return product_ns(problem, product, make_blocking(product.gemm, problem.threads), ceilings, 2) + 150;
}

double matvec_ns(const Problem& problem, const Product& product, const Ceilings& ceilings) {
  const double sums = product.gemm.m == 1 ? 5 : 4;
  return product_ns(problem, product, make_thin_blocking(product.gemm, problem.threads), ceilings, sums) + 100;
}

double estimate_packed(const Problem& problem, const Tile&, const Ceilings& ceilings) {
  return packed_ns(problem, product_of(problem, true), ceilings);
}

double estimate_matvec(const Problem& problem, const Tile&, const Ceilings& ceilings) {
  return matvec_ns(problem, product_of(problem, true), ceilings);
}

double estimate_any(const Problem& problem, const Tile&, const Ceilings& ceilings) {
  const Product product = product_of(problem, false);
  const Blocking cut = make_blocking(product.gemm, problem.threads);
  // Packing reads and writes B once: 0.2 ns a float from the second cache.
  const double packing = 0.2 * double(problem.input(1).elements()) / cut.threads;
  return product_ns(problem, product, cut, ceilings, 2) + packing + 200;
}

/// size[0..2]: rows, columns and k of a block at most; 0: by the rule.
Product tiled(const Problem& problem, const Tile& tile, bool pack) {
  Product product = product_of(problem, pack);
  product.gemm.tile = {tile.size[0], tile.size[1], tile.size[2]};
  return product;
}

int64_t workspace_packed(const Problem& problem, const Tile& tile) {
  return gemm_workspace_bytes(tiled(problem, tile, true).gemm, problem.threads);
}
int64_t workspace_any(const Problem& problem, const Tile& tile) {
  return gemm_workspace_bytes(tiled(problem, tile, false).gemm, problem.threads);
}
int64_t workspace_matvec(const Problem& problem, const Tile& tile) {
  return matvec_workspace_bytes(tiled(problem, tile, true).gemm, problem.threads);
}

/// Blocks of A from a 64th of the second cache to more than half of it: what is best lies between.
std::vector<Tile> sweep(const Problem& problem, bool pack) {
  const Gemm g = tiled(problem, {}, pack).gemm;
  const int64_t unit = micro_kernels().max_rows;
  if (g.m <= unit || g.k < 2) return {};
  std::vector<Tile> list;
  const auto add = [&](int64_t rows, int64_t cols, int64_t k) {
    Tile tile;
    tile.size = {int32_t(std::min(rows, round_up(g.m, unit))), int32_t(cols), int32_t(std::min(k, g.k))};
    const BlockBytes bytes = block_bytes(make_blocking(tiled(problem, tile, pack).gemm, problem.threads));
    if (bytes.a + bytes.b <= bytes.room && std::find(list.begin(), list.end(), tile) == list.end())
      list.push_back(tile);
  };
  const int64_t all_cols = round_up(g.n, panel_width());
  for (const int64_t k : {int64_t(256), int64_t(512), int64_t(1024), int64_t(2048)}) {
    if (k > 256 && k / 2 >= g.k) break;
    for (const int64_t tiles : {1, 2, 4, 8, 16, 32})
      if (tiles == 1 || (tiles / 2) * unit < g.m)
        add(tiles * unit, pack ? all_cols : std::min<int64_t>(all_cols, 256), k);
  }
  if (!pack)
    for (const int64_t cols : {64, 128, 512, 1024})
      if (cols / 2 < g.n) add(8 * unit, std::min<int64_t>(cols, all_cols), std::min<int64_t>(g.k, 512));
  return list;
}
std::vector<Tile> sweep_packed(const Problem& problem) { return sweep(problem, true); }
std::vector<Tile> sweep_any(const Problem& problem) { return sweep(problem, false); }

TileCheck check_blocks(const Problem& problem, const Tile& tile, bool pack) {
  TileCheck check;
  const int64_t rows = micro_kernels().max_rows, cols = panel_width(), lanes = micro_kernels().lanes;
  // There is a kernel for each number of rows, so only columns are padded, to whole vectors.
  check.unit = fmt::format("1x{}x1, and one of {}x{}x1 fills the registers", lanes, rows, cols);
  if (tile.size[0] < 1 || tile.size[1] < 1 || tile.size[2] < 1 || tile.size[3] || tile.size[4] || tile.size[5]) {
    check.reason = "a tile of a product is ROWSxCOLUMNSxK, each at least 1";
    return check;
  }
  const Product product = tiled(problem, tile, pack);
  // What was asked for, though the problem may be smaller.
  Blocking blocking = make_blocking(product.gemm, problem.threads);
  blocking.block_rows = tile.size[0], blocking.block_k = tile.size[2];
  blocking.block_panels = (tile.size[1] + cols - 1) / cols;
  const BlockBytes bytes = block_bytes(blocking);
  check.bytes = bytes.a + bytes.b;
  check.limit = bytes.room;
  check.padding_share = 1 - double(tile.size[1]) / double(round_up(tile.size[1], lanes));
  return check;
}
TileCheck check_packed(const Problem& problem, const Tile& tile) { return check_blocks(problem, tile, true); }
TileCheck check_any(const Problem& problem, const Tile& tile) { return check_blocks(problem, tile, false); }

Packing packing(const Problem& problem, const Tile&, int input) {
  if (input != 1) return {};
  const Product p = product_of(problem, true);
  return {fmt::format("panels {}x k={} n={} width={}{}", p.b_matrices, p.gemm.k, p.gemm.n, panel_width(),
                      p.b_stride_n == 1 ? "" : " transposed"),
          p.b_matrices * packed_b_floats(p.gemm.k, p.gemm.n) * int64_t(sizeof(float))};
}

void pack(const Problem& problem, const Tile&, int input, const Tensor& source, void* packed) {
  if (input != 1) return;
  const Product p = product_of(problem, true);
  for (int64_t matrix = 0; matrix < p.b_matrices; ++matrix) {
    pack_b(source.as<float>() + matrix * p.gemm.k * p.gemm.n, p.b_stride_k, p.b_stride_n, p.gemm.k, p.gemm.n,
           static_cast<float*>(packed) + matrix * packed_b_floats(p.gemm.k, p.gemm.n));
  }
}

// ---- split k: a tile's size[0] is the number of parts

bool is_thin(const Gemm& g) { return g.m <= kMaxMatvecRows && g.a.k_stride == 1; }

Product split(const Problem& problem, const Tile& tile) {
  Product product = product_of(problem, true);
  product.gemm.parts_k = std::max(1, tile.size[0]);
  return product;
}

// Less than this share of k a part costs more to start and add than it brings.
constexpr int64_t kLeastPartOfK = 256;

Support supports_split_k(const Problem& problem) {
  if (Support s = supports_packed(problem); !s.ok) return s;
  const Gemm g = product_of(problem, true).gemm;
  if (g.k < 2 * kLeastPartOfK) return no("k is {}, under two parts of {}", g.k, kLeastPartOfK);
  const int64_t rows = micro_kernels().max_rows, tiles = ceil_div(g.m, rows) * ceil_div(g.n, panel_width());
  if (tiles >= 2 * problem.threads) return no("{} tiles are enough for {} threads", tiles, problem.threads);
  return yes();
}

/// Twos, and as many as fill the threads once or twice.
std::vector<Tile> split_tiles(const Problem& problem) {
  std::vector<Tile> list;
  const int64_t most = std::min<int64_t>(product_of(problem, true).gemm.k / kLeastPartOfK, 2 * problem.threads);
  for (int64_t parts = 2; parts <= most; parts *= 2) list.push_back({{int32_t(parts)}});
  return list;
}

/// The parts' time, and the partial sums: written, and read by one thread, from another core's cache.
double estimate_split_k(const Problem& problem, const Tile& tile, const Ceilings& ceilings) {
  const Product product = split(problem, tile);
  const Gemm& g = product.gemm;
  const double sums = 0.3 * double(g.parts_k) * double(make_blocking(g, 1).partial_floats);
  return sums + (is_thin(g) ? matvec_ns(problem, product, ceilings) : packed_ns(problem, product, ceilings));
}

TileCheck check_split_k(const Problem& problem, const Tile& tile) {
  TileCheck check;
  check.unit = "a number of parts of k";
  const int64_t k = product_of(problem, true).gemm.k;
  if (tile.size[0] < 2 || tile.size[0] > k ||
      std::any_of(tile.size.begin() + 1, tile.size.end(), [](int32_t s) { return s != 0; }))
    check.reason = fmt::format("a tile of this kernel is its number of parts of k: 2 to {}", k);
  return check;
}

int64_t workspace_split_k(const Problem& problem, const Tile& tile) {
  const Gemm g = split(problem, tile).gemm;
  return is_thin(g) ? matvec_workspace_bytes(g, problem.threads) : gemm_workspace_bytes(g, problem.threads);
}

std::shared_ptr<const void> prepare_split_k(const Problem& problem, const Tile& tile) {
  return std::make_shared<const Product>(split(problem, tile));
}

std::shared_ptr<const void> prepare_packed(const Problem& problem, const Tile& tile) {
  return std::make_shared<const Product>(tiled(problem, tile, true));
}
std::shared_ptr<const void> prepare_any(const Problem& problem, const Tile& tile) {
  return std::make_shared<const Product>(tiled(problem, tile, false));
}

// The workspace was sized for the problem's threads.
ThreadPool limited(const KernelCall& call, const ThreadPool& pool) { return pool.at_most(call.problem.threads); }

void run_gemm(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const ProductContext context{&call.state_as<Product>(), &buffers};
  gemm(bind_product(context), buffers.workspace, limited(call, pool));
}
void run_matvec(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const ProductContext context{&call.state_as<Product>(), &buffers};
  matvec(bind_product(context), buffers.workspace, limited(call, pool));
}

void run_split_k(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  is_thin(call.state_as<Product>().gemm) ? run_matvec(call, buffers, pool) : run_gemm(call, buffers, pool);
}

bool in_place_packed(const Problem& problem, int input) { return product_of(problem, true).in_place(input); }
bool in_place_any(const Problem& problem, int input) { return product_of(problem, false).in_place(input); }

constexpr Kernel matvec_kernel(std::string_view op) {
  return {.name = "cpu.matvec",
          .op = op,
          .supports = supports_matvec,
          .estimate = estimate_matvec,
          .workspace = workspace_matvec,
          .packing = packing,
          .pack = pack,
          .prepare = prepare_packed,
          .run = run_matvec,
          .in_place = in_place_packed};
}
constexpr Kernel packed_kernel(std::string_view op) {
  return {.name = "cpu.matmul_packed",
          .op = op,
          .supports = supports_packed,
          .sweep = sweep_packed,
          .check_tile = check_packed,
          .estimate = estimate_packed,
          .workspace = workspace_packed,
          .packing = packing,
          .pack = pack,
          .prepare = prepare_packed,
          .run = run_gemm,
          .in_place = in_place_packed};
}
constexpr Kernel split_k_kernel(std::string_view op) {
  return {.name = "cpu.matmul_split_k",
          .op = op,
          .supports = supports_split_k,
          .tiles = split_tiles,
          .check_tile = check_split_k,
          .estimate = estimate_split_k,
          .workspace = workspace_split_k,
          .packing = packing,
          .pack = pack,
          .prepare = prepare_split_k,
          .run = run_split_k,
          .in_place = in_place_packed};
}
constexpr Kernel any_kernel(std::string_view op) {
  return {.name = "cpu.matmul",
          .op = op,
          .supports = supports_any,
          .sweep = sweep_any,
          .check_tile = check_any,
          .estimate = estimate_any,
          .workspace = workspace_any,
          .prepare = prepare_any,
          .run = run_gemm,
          .in_place = in_place_any};
}

}  // namespace

constinit const Kernel kMatVec[3] = {matvec_kernel("MatMul"), matvec_kernel("FusedMatMul"), matvec_kernel("Gemm")};
constinit const Kernel kMatMulPacked[3] = {packed_kernel("MatMul"), packed_kernel("FusedMatMul"),
                                           packed_kernel("Gemm")};
constinit const Kernel kMatMulSplitK[3] = {split_k_kernel("MatMul"), split_k_kernel("FusedMatMul"),
                                           split_k_kernel("Gemm")};
constinit const Kernel kMatMulAny[3] = {any_kernel("MatMul"), any_kernel("FusedMatMul"), any_kernel("Gemm")};

}  // namespace ridgeline::cpu
