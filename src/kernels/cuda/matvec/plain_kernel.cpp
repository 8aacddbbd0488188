// cuda.low_plain: LowBitMatMul for what the kernels on tensor cores refuse.
#include <algorithm>

#include "kernels/cuda/device.h"
#include "kernels/cuda/matvec/matvec_kernels.h"
#include "kernels/cuda/matvec/rows_shape.h"
#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

constexpr int kWarps = 8;  // WARPS of plain.cu

Support supports(const Problem& p) {
  const RowsShape s = plain_low_bit(p);
  if (!s.refusal.empty()) return no("{}", s.refusal);
  if (p.outputs.size() != 1) return no("more than one result");
  if (s.m * s.n > int64_t(kWarps) << 31) return no("{} x {} results", s.m, s.n);
  return yes();
}

// Each result reads its row of weights anew, from the second cache; some 30 instructions a weight and 32 lanes.
double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const RowsShape s = plain_low_bit(p);
  const double products = double(s.m) * double(s.n) * double(s.k);
  return products * 30 / (128 * 1.7 * std::max(1, target().multiprocessors)) +
         c.stream_ns(p.read_bytes(), p.write_bytes(), 1, MemoryLevel::kDram) + c.launch_ns.at(1, 1) + 2000;
}

Source source(const Problem& p, const Tile&) {
  const RowsShape s = plain_low_bit(p);
  Source source;
  source.file = "matvec/plain.cu";
  source.entry = "plain";
  source.program = epilogue_source(p, s.row_axes).code;
  const auto define = [&](std::string_view name, int64_t value) {
    source.program += fmt::format("#define {} {}\n", name, value);
  };
  const auto type = [&](std::string_view name, int input) {
    source.program += fmt::format("using {} = {};\n", name, storage_type(p.input(input).dtype));
  };
  type("XType", 0), type("QType", 1);
  define("BITS", s.bits), define("OFFSET", s.bits == 4 && !p.has(3) && !p.has(4) ? 8 : 0);
  define("ACT_I8", p.string("act") == "i8"), define("ROUND_X", s.round_x);
  define("HAS_ZERO", p.has(3)), define("HAS_MIN", p.has(4)), define("HAS_SUPER", p.has(5));
  define("HAS_SUPER_MIN", p.has(6));
  if (p.has(2)) type("ScaleType", 2);
  if (p.has(4)) type("MinType", 4);
  if (p.has(5)) type("SuperType", 5);
  if (p.has(6)) type("SuperMinType", 6);
  return source;
}

struct Arguments {
  uint64_t x = 0, q = 0, scale = 0, zero = 0, low = 0, super_scale = 0, super_low = 0, y = 0;
  int64_t x_row, x_k, y_row, y_column;
  int64_t m, n, k, groups, super_groups, super_low_groups, act_block;
};

void run(const KernelCall& call, const Buffers& buffers, Stream stream) {
  const Problem& p = call.problem;
  const RowsShape s = plain_low_bit(p);
  const auto address = [&](int input) { return p.has(input) ? reinterpret_cast<uint64_t>(buffers.inputs[input]) : 0; };
  const auto groups = [&](int input) { return p.has(input) ? p.input(input).shape()[1] : 1; };
  Arguments a{address(0), address(1), address(2), address(3), address(4), address(5), address(6)};
  a.y = reinterpret_cast<uint64_t>(buffers.outputs[0]);
  a.x_row = s.x_row, a.x_k = s.x_k, a.y_row = s.y_row, a.y_column = s.y_column, a.m = s.m, a.n = s.n, a.k = s.k;
  a.groups = groups(2), a.super_groups = groups(5), a.super_low_groups = groups(6);
  a.act_block = p.integer("act_block") ? p.integer("act_block") : std::max<int64_t>(1, s.k);
  const std::vector<uint64_t> words = epilogue_words(p, s.row_axes, buffers.inputs);
  void* parameters[] = {&a, const_cast<uint64_t*>(words.data())};
  launch(call.state_as<LoadedKernel>(), {(s.m * s.n + kWarps - 1) / kWarps}, kWarps * 32, stream, parameters);
}

}  // namespace

constinit const Kernel kLowPlain = {.name = "cuda.low_plain",
                                    .op = "LowBitMatMul",
                                    .device = DeviceKind::kCuda,
                                    .supports = supports,
                                    .estimate = estimate,
                                    .source = source,
                                    .launch = run};

}  // namespace ridgeline::cuda
