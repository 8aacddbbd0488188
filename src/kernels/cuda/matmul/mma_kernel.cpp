// cuda.matmul_mma: bf16 and f16 products by mma.sync, for sm_80 and for operands that bulk tensor copies do not take
// (matmul/mma.cu).
#include <algorithm>

#include "core/integer.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/matmul/matmul_kernels.h"
#include "kernels/cuda/matmul/product.h"

namespace ridgeline::cuda {
namespace {

constexpr int kStep = 32;  // of k
constexpr int kStages = 4;
constexpr int kUnit = 8;  // elements of a word of 16 bytes

PackedB packed_b(const Problem& p) { return {p.input(1).is_constant, kUnit}; }

Support supports(const Problem& p) {
  const DType type = p.input(0).dtype, out = p.output().dtype;
  if (type != DType::kBF16 && type != DType::kF16) return no("operands are {}: bf16 or f16 are wanted", name(type));
  if (out != DType::kBF16 && out != DType::kF16 && out != DType::kF32) return no("y is {}", name(out));
  const Product product = product_of(p, packed_b(p));
  if (!product.refusal.empty()) return no("{}", product.refusal);
  if (std::max({product.m, product.n, product.k}) >= int64_t(1) << 31) return no("an extent above 2^31");
  return yes();
}

std::vector<Tile> tiles(const Problem&) { return {{{128, 128}}, {{64, 64}}}; }

int64_t shared_bytes(const Tile& tile) { return (int64_t(tile.size[0]) + tile.size[1]) * kStep * 2 * kStages; }

TileCheck check_tile(const Problem& p, const Tile& tile) {
  TileCheck c;
  c.unit = "64x64";
  const auto [rows, columns] = std::pair{tile.size[0], tile.size[1]};
  if (rows < 1 || columns < 1) c.reason = "a tile has rows and columns";
  c.bytes = shared_bytes(tile), c.limit = target().shared_bytes_per_block;
  if (!c.fits()) return c;
  const std::vector<Tile> known = tiles(p);
  if (std::find(known.begin(), known.end(), tile) == known.end()) c.reason = "tiles are 128x128 and 64x64";
  const Product x = product_of(p, packed_b(p));
  c.padding_share =
      1 - double(x.m) * double(x.n) / std::max(1.0, double(round_up(x.m, rows)) * double(round_up(x.n, columns)));
  return c;
}

bool along_k(int64_t k_stride, int64_t across_stride, int64_t extent) {
  return extent == 1 || k_stride <= across_stride;
}
bool a_along_k(const Product& x) { return along_k(x.a.column, x.a.row, x.m); }
bool b_along_k(const Product& x) { return along_k(x.b.row, x.b.column, x.n); }

int64_t tiles_of(const Product& x, const Tile& tile) {
  return ceil_div(x.m, tile.size[0]) * ceil_div(x.n, tile.size[1]) * x.batches();
}

// Floor: mma.sync reaches some 60 % of what wgmma does on sm_90. Where no peak is known, that of an A100's
// multiprocessor.
double estimate(const Problem& p, const Tile& tile, const Ceilings& c) {
  const Product x = product_of(p, packed_b(p));
  const int sms = target().multiprocessors;
  const double measured = target().sm >= 90 ? c.compute_gop_s(p.input(0).dtype).one / sms : 0;
  const double peak = (measured > 0 ? measured * 0.6 : 2000.0) * (tile.size[0] == 128 ? 1 : 0.7);
  const auto words = [&](int64_t dense, int64_t stride) { return dense == 1 && stride % kUnit == 0; };
  const bool whole = words(a_along_k(x) ? x.a.column : x.a.row, a_along_k(x) ? x.a.row : x.a.column) &&
                     words(b_along_k(x) ? x.b.row : x.b.column, b_along_k(x) ? x.b.column : x.b.row);
  const int at_once = tile.size[0] == 128 ? 2 : 4;
  const int64_t count = tiles_of(x, tile);
  const int64_t beside = std::clamp<int64_t>(ceil_div(count, int64_t(sms)), 1, at_once);
  const double waves = double(ceil_div(count, int64_t(sms) * at_once));
  const double step_ns =
      std::max(2.0 * tile.size[0] * tile.size[1] * kStep / peak * double(beside), 150.0) * (whole ? 1 : 5);
  const double work = waves * (double(ceil_div(x.k, kStep)) * step_ns + 1500) + 700;
  // Four stages of 32 do not keep memory busy.
  const double bytes = c.stream_ns(p.read_bytes(), p.write_bytes(), 1, MemoryLevel::kDram) / 0.7 + 2000;
  return std::max(work, bytes) + c.launch_ns.at(1, 1);
}

Source source(const Problem& p, const Tile& tile) {
  const Product x = product_of(p, packed_b(p));
  const bool large = tile.size[0] == 128;
  const char* const type = p.input(0).dtype == DType::kBF16 ? "bf16" : "f16";
  Source source;
  source.file = "matmul/mma.cu";
  source.entry = "matmul_mma";
  source.program = product_source(p, x);
  source.program += fmt::format(
      "__device__ __forceinline__ void multiply(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {{\n"
      "  asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.{0}.{0}.f32 {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, "
      "{{%8, %9}}, {{%0, %1, %2, %3}};\"\n"
      "               : \"+f\"(d[0]), \"+f\"(d[1]), \"+f\"(d[2]), \"+f\"(d[3])\n"
      "               : \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b0), \"r\"(b1));\n}}\n",
      type);
  source.defines = {fmt::format("BM={}", tile.size[0]),
                    fmt::format("BN={}", tile.size[1]),
                    fmt::format("WARPS_M={}", 2),
                    fmt::format("WARPS_N={}", large ? 4 : 2),
                    fmt::format("STAGES={}", kStages),
                    fmt::format("A_ALONG_K={}", int(a_along_k(x))),
                    fmt::format("B_ALONG_K={}", int(b_along_k(x))),
                    fmt::format("EVEN_N={}", int(x.n % 2 == 0))};
  source.shared_bytes = shared_bytes(tile);
  return source;
}

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Product x = product_of(call.problem, packed_b(call.problem));
  std::vector<uint64_t> words = argument_words(x, buffers);
  void* parameters[] = {words.data()};
  launch(call.state_as<LoadedKernel>(), {tiles_of(x, call.tile)}, call.tile.size[0] == 128 ? 256 : 128, stream,
         parameters);
}

Packing packing(const Problem& p, const Tile&, int input) {
  return input == 1 && p.input(1).is_constant ? packing_of(p, packed_b(p)) : Packing{};
}
void pack(const Problem& p, const Tile&, int input, const Tensor& source, void* packed) {
  if (input == 1) pack_b(p, packed_b(p), source, packed);
}

constexpr Kernel mma_kernel(std::string_view op) {
  return {.name = "cuda.matmul_mma",
          .op = op,
          .device = DeviceKind::kCuda,
          .supports = supports,
          .tiles = tiles,
          .check_tile = check_tile,
          .estimate = estimate,
          .packing = packing,
          .pack = pack,
          .source = source,
          .launch = run};
}

}  // namespace

constinit const Kernel kMatMulMma[3] = {mma_kernel("MatMul"), mma_kernel("FusedMatMul"), mma_kernel("Gemm")};

}  // namespace ridgeline::cuda
