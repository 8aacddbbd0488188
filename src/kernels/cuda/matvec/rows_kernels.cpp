// Few rows times constant weights: rows.cu (cuda.matvec, cuda.matvec_low), few.cu (cuda.matvec_bulk,
// cuda.matvec_low_bulk) and many.cu (cuda.matmul_low) on a problem.
#include <algorithm>

#include "kernels/cuda/capabilities.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/matvec/blocking.h"
#include "kernels/cuda/matvec/matvec_kernels.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

constexpr int64_t kMostRows = 64;  // of 16-bit weights: more belong to kernels with tiles of both sides
constexpr int64_t kFewRows = 8;    // of the instruction

template <Path PATH>
std::vector<Tile> tiles(const Problem& p) {
  return {best_tile(rows_shape(p), PATH)};
}
template <Path PATH>
std::vector<Tile> sweep(const Problem& p) {
  return further_tiles(p, rows_shape(p), PATH);
}
template <Path PATH>
TileCheck check(const Problem& p, const Tile& tile) {
  return check_blocking(p, rows_shape(p), tile, PATH);
}
template <Path PATH>
double estimate(const Problem& p, const Tile& tile, const Ceilings& c) {
  return blocking_ns(p, rows_shape(p), tile, PATH, c);
}

template <Path PATH>
Support supports(const Problem& p) {
  const RowsShape s = rows_shape(p);
  if (!s.refusal.empty()) return no("{}", s.refusal);
  if (PATH != Path::kRows)
    if (const std::string why = missing(Capability::kBulkCopies); !why.empty()) return no("{}", why);
  if (PATH == Path::kFew && s.m > kFewRows) return no("{} rows, at most {}", s.m, kFewRows);
  if (PATH == Path::kMany && s.m <= kFewRows) return no("{} rows, more than {} are wanted", s.m, kFewRows);
  // In f32 each product is eight: with more rows than one instruction has, kernels without matrix units are as fast.
  const int64_t most = s.bits == 32 ? kFewRows : kMostRows;
  if (p.op->name != "LowBitMatMul" && s.m > most) return no("{} rows, at most {}", s.m, most);
  if ((s.m + 7) / 8 > 65535) return no("{} rows", s.m);
  if (p.outputs.size() != 1) return no("more than one result");
  const int64_t bytes = blocking(p, s, best_tile(s, PATH), PATH).shared_bytes;
  const int64_t limit = target().shared_bytes_per_block;
  return bytes > limit ? no("{} bytes of shared memory, {} there are", bytes, limit) : yes();
}

Packing packing(const Problem& p, const Tile&, int input) {
  const RowsShape s = rows_shape(p);
  if (input == 1)
    return {fmt::format("rows16 bits={} n={} k={} steps={},{}", s.bits, s.n, s.k, s.w_row, s.w_k), s.weight_bytes()};
  if (input < 1 || input >= p.op_inputs || !s.scaled() || !p.has(input)) return {};
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

void define_scales(const Problem& p, const RowsShape& s, std::string& text) {
  const auto define = [&](std::string_view name, int64_t value) {
    text += fmt::format("#define {} {}\n", name, value);
  };
  const auto type = [&](std::string_view name, int input) {
    text += fmt::format("using {} = {};\n", name, storage_type(p.input(input).dtype));
  };
  define("W_OFFSET", s.bits == 4 && !p.has(3) && !p.has(4) ? 8 : 0);
  define("HALVES", s.halves), define("GROUPS", s.groups);
  define("HAS_ZERO", p.has(3)), define("HAS_MIN", p.has(4)), define("HAS_SUPER", p.has(5));
  define("HAS_SUPER_MIN", p.has(6));
  type("ScaleType", 2);
  if (p.has(4)) type("MinType", 4);
  if (p.has(5)) type("SuperType", 5), define("SUPER_GROUPS", p.input(5).shape()[1]);
  if (p.has(6)) type("SuperMinType", 6), define("SUPER_MIN_GROUPS", p.input(6).shape()[1]);
}

template <Path PATH>
Source source(const Problem& p, const Tile& tile) {
  const RowsShape s = rows_shape(p);
  const Blocking b = blocking(p, s, tile, PATH);
  Source source;
  source.entry = PATH == Path::kFew ? "few" : PATH == Path::kMany ? "many" : "rows";
  source.file = "matvec/" + source.entry + ".cu";
  source.program = epilogue_source(p, s.row_axes).code;
  source.shared_bytes = b.shared_bytes;
  const auto define = [&](std::string_view name, int64_t value) {
    source.program += fmt::format("#define {} {}\n", name, value);
  };
  define("NT", b.nt), define("WARPS", b.warps);
  if (PATH == Path::kRows) {
    define("MT", b.mt), define("DEPTH", b.depth), define("X_ROWS", b.x_rows), define("X_CHUNK", b.x_chunk);
  } else {
    define("STAGES", b.depth), define("ROOM_GROUPS", b.room_groups), define("SCALE_ROOM", b.scale_room);
    define("WARP_BYTES", b.warp_bytes);
  }
  if (PATH == Path::kFew) define("SPREAD", s.m == 1), define("EARLY", b.early);
  if (PATH == Path::kMany) define("MT", b.mt), define("CLUSTER", b.cluster), define("X_STAGES", b.x_stages);
  source.program += fmt::format("using XType = {};\n", storage_type(s.x));
  define("MMA_F16", in_f16(s));
  define("X_PARTS", x_parts(s)), define("W_PARTS", w_parts(s)), define("W_BITS", s.bits);
  define("X_DIRECT", in_f16(s) || s.x == DType::kBF16);
  define("HAS_C", s.c_input >= 0);
  if (s.c_input >= 0) source.program += fmt::format("using CType = {};\n", storage_type(p.input(s.c_input).dtype));
  if (s.scaled()) define_scales(p, s, source.program);
  source.program += embedded("matvec/operands.cu");
  if (PATH != Path::kRows) source.program += embedded("matvec/bulk.cu");
  return source;
}

struct Arguments {
  uint64_t x = 0, w = 0, scale = 0, zero = 0, low = 0, super_scale = 0, super_low = 0, y = 0, c = 0;
  int64_t x_row, x_k, y_row, y_column, c_row, c_column;
  int64_t m, n, k, tiles;
  float alpha, beta;
  int32_t steps, buffers, aligned, none;
};

template <Path PATH>
void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const RowsShape s = rows_shape(p);
  const Blocking b = blocking(p, s, call.tile, PATH);
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
  a.c_column = s.c_column, a.m = s.m, a.n = s.n, a.k = s.k, a.tiles = s.tiles();
  a.steps = int32_t(s.steps()), a.buffers = b.buffers;
  a.alpha = float(s.alpha), a.beta = float(s.beta);
  a.aligned = s.x_k == 1 && a.x % 16 == 0 && (s.m == 1 || s.x_row * x_bytes(s) % 16 == 0);
  const std::vector<uint64_t> words = epilogue_words(p, s.row_axes, buffers.inputs);
  void* parameters[] = {&a, const_cast<uint64_t*>(words.data())};
  const int64_t columns = (s.tiles() + b.tiles() - 1) / b.tiles() * b.cluster;
  launch(call.state_as<LoadedKernel>(), {columns, (s.m + 8 * b.mt - 1) / (8 * b.mt)}, b.warps * 32, stream, parameters,
         {.dependent = true});
}

template <Path PATH>
constexpr Kernel kernel(std::string_view name, std::string_view op) {
  return {.name = name,
          .op = op,
          .device = DeviceKind::kCuda,
          .supports = supports<PATH>,
          .tiles = tiles<PATH>,
          .sweep = sweep<PATH>,
          .check_tile = check<PATH>,
          .estimate = estimate<PATH>,
          .packing = packing,
          .pack = pack,
          .source = source<PATH>,
          .launch = run<PATH>};
}

}  // namespace

constinit const Kernel kMatVec[3] = {kernel<Path::kRows>("cuda.matvec", "MatMul"),
                                     kernel<Path::kRows>("cuda.matvec", "FusedMatMul"),
                                     kernel<Path::kRows>("cuda.matvec", "Gemm")};
constinit const Kernel kMatVecBulk[3] = {kernel<Path::kFew>("cuda.matvec_bulk", "MatMul"),
                                         kernel<Path::kFew>("cuda.matvec_bulk", "FusedMatMul"),
                                         kernel<Path::kFew>("cuda.matvec_bulk", "Gemm")};
constinit const Kernel kMatVecLow = kernel<Path::kRows>("cuda.matvec_low", "LowBitMatMul");
constinit const Kernel kMatVecLowBulk = kernel<Path::kFew>("cuda.matvec_low_bulk", "LowBitMatMul");
constinit const Kernel kMatMulLow = kernel<Path::kMany>("cuda.matmul_low", "LowBitMatMul");

}  // namespace ridgeline::cuda
