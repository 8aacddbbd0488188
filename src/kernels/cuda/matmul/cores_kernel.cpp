// cuda.matmul_cores: products without matrix instructions, for every type and every stride; exact f32.
#include <algorithm>

#include "core/integer.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul/matmul_kernels.h"
#include "kernels/cuda/matmul/product.h"

namespace ridgeline::cuda {
namespace {

Support supports(const Problem& p) {
  const Product product = product_of(p);
  return product.refusal.empty() ? yes() : no("{}", product.refusal);
}

// What is multiplied and summed, and as what a sum goes into the epilogue. Integers wrap: they are summed unsigned.
struct Sums {
  const char *value, *sum;
  int bytes;
};
Sums sums_of(const Problem& p) {
  switch (p.input(0).dtype) {
    case DType::kF64:
      return {"double", "double", 8};
    case DType::kI64:
      return {"u64", "i64", 8};
    case DType::kU64:
      return {"u64", "u64", 8};
    case DType::kU32:
      return {"u32", "u32", 4};
    case DType::kI32:
    case DType::kI8:
    case DType::kU8:
      return {"u32", "int", 4};
    default:
      return {"float", "float", 4};
  }
}

// A tile {size, parts of k}: rows, columns and k of a step; sums a thread, of 256 threads.
struct Shape {
  int rows, columns, k, per_row, per_column, split;
};
Shape shape_of(const Tile& tile) {
  const int size = tile.size[0], split = std::max(1, tile.size[1]);
  if (size == 128) return {128, 128, 8, 8, 8, split};
  if (size == 64) return {64, 64, 16, 4, 4, split};
  return {32, 32, 32, 2, 2, split};
}

int64_t tiles_of(const Product& product, const Shape& s) {
  return ceil_div(product.m, s.rows) * ceil_div(product.n, s.columns) * product.batches();
}

constexpr int64_t kLeastPartOfK = 64;

std::vector<Tile> tiles(const Problem& p) {
  std::vector<Tile> list{{{64, 1}}, {{32, 1}}};
  // 64 sums of 8 bytes leave no registers.
  if (sums_of(p).bytes == 4) list.insert(list.begin(), {{128, 1}});
  const Product product = product_of(p);
  for (const int size : {64, 32})
    for (int split = 2; split <= 32 && product.k >= split * kLeastPartOfK; split *= 2)
      if (tiles_of(product, shape_of({{size, split}})) * split <= int64_t(4) * target().multiprocessors)
        list.push_back({{size, split}});
  return list;
}

// Floor: FLOPs at 60 TFLOP/s of f32 (half of f64), bytes at 4.5 TB/s. A step of k waits some 0.3 us for memory unless
// other blocks of the multiprocessor work meanwhile (measured: 128 tiles of 64x64 took 0.76 us a step with one step
// read ahead).
double estimate(const Problem& p, const Tile& tile, const Ceilings& c) {
  const Product product = product_of(p);
  const Shape s = shape_of(tile);
  const int sms = target().multiprocessors;
  const double peak = c.compute_gop_s(DType::kF32).one / sms / (sums_of(p).bytes / 4);
  const double share = s.rows == 128 ? 0.62 : s.rows == 64 ? 0.45 : 0.25;
  const int at_once = s.rows == 128 ? 2 : 3;
  const int64_t count = tiles_of(product, s) * s.split;
  const double depth = double(ceil_div(product.k, int64_t(s.split)));
  const double work = 2.0 * s.rows * s.columns * (depth + s.k) / (peak * share);
  const int64_t waves = ceil_div(count, int64_t(sms) * at_once);
  const int64_t beside = std::clamp<int64_t>(ceil_div(count, int64_t(sms)), 1, at_once);
  const double tile_ns = std::max(work * double(beside), depth / s.k * 350) + 1000;
  const int64_t sums = product.m * product.n * product.batches() * sums_of(p).bytes * s.split;
  const double adding = s.split > 1 ? c.launch_ns.at(1, 1) + 1500 + c.stream_ns(sums, sums, 1) : 0;
  return std::max(double(waves) * tile_ns, c.stream_ns(p.read_bytes(), p.write_bytes(), 1)) + adding +
         c.launch_ns.at(1, 1);
}

int64_t workspace(const Problem& p, const Tile& tile) {
  const Shape s = shape_of(tile);
  if (s.split == 1) return 0;
  const Product product = product_of(p);
  return product.m * product.n * product.batches() * sums_of(p).bytes * s.split;
}

Source source(const Problem& p, const Tile& tile) {
  const Product product = product_of(p);
  const Shape s = shape_of(tile);
  const Sums sums = sums_of(p);
  Source source;
  source.file = "matmul/cores.cu";
  source.entry = "matmul_cores";
  source.program = product_source(p, product);
  source.program += fmt::format("using Value = {};\nusing Sum = {};\n", sums.value, sums.sum);
  const bool zeros = product.a_zero_input >= 0 || product.b_zero_input >= 0;
  source.defines = {fmt::format("BM={}", s.rows),
                    fmt::format("BN={}", s.columns),
                    fmt::format("BK={}", s.k),
                    fmt::format("TM={}", s.per_row),
                    fmt::format("TN={}", s.per_column),
                    fmt::format("BLOCKS={}", s.rows == 128 || sums.bytes == 8 ? 2 : 3),
                    fmt::format("DEEP={}", int(s.rows < 128 && sums.bytes == 4)),
                    fmt::format("A_ALONG_K={}", int(product.a.column <= product.a.row || product.m == 1)),
                    fmt::format("B_ALONG_N={}", int(product.b.column <= product.b.row && product.n > 1)),
                    fmt::format("ZERO_POINTS={}", int(zeros)),
                    fmt::format("SPLITS={}", int(s.split > 1))};
  if (s.split > 1) source.more_entries = {"matmul_cores_sum"};
  return source;
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Product product = product_of(call.problem);
  const Shape s = shape_of(call.tile);
  std::vector<uint64_t> words = argument_words(product, buffers);
  const LoadedKernel& loaded = call.state_as<LoadedKernel>();
  void* partial = buffers.workspace;
  auto split = uint32_t(s.split);
  void* parameters[] = {words.data(), &partial, &split};
  launch(loaded, {tiles_of(product, s) * s.split}, 256, stream, parameters);
  if (s.split == 1) return;
  auto count = uint64_t(product.m * product.n * product.batches());
  void* more[] = {words.data(), &partial, &split, &count};
  launch(loaded.more.at(0), {ceil_div(int64_t(count), 256)}, 256, stream, more);
}

constexpr Kernel cores_kernel(std::string_view op) {
  return {.name = "cuda.matmul_cores",
          .op = op,
          .device = DeviceKind::kCuda,
          .supports = supports,
          .tiles = tiles,
          .estimate = estimate,
          .workspace = workspace,
          .source = source,
          .launch = run};
}

}  // namespace

constinit const Kernel kMatMulCores[5] = {cores_kernel("QLinearMatMul"), cores_kernel("MatMul"),
                                          cores_kernel("FusedMatMul"), cores_kernel("Gemm"),
                                          cores_kernel("MatMulInteger")};

}  // namespace ridgeline::cuda
