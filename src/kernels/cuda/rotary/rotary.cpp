// cuda.rotary, cuda.rotary_append, cuda.tensor_scatter: rows turned by given angles, and rows written into caches.
#include <algorithm>

#include "kernels/cuda/device.h"
#include "kernels/cuda/program_source.h"
#include "kernels/cuda/rotary/rotary_kernels.h"

namespace ridgeline::cuda {
namespace {

constexpr int kThreads = 128;  // of one token's 768 units: six blocks

// `struct Arguments` of rotary.cu, field by field.
struct Arguments {
  uint64_t x = 0, cos = 0, sin = 0, indices = 0, y = 0, keys = 0, values = 0, keys_before = 0, values_before = 0;
  int64_t batch = 0, heads = 0, own = 0, length = 0, depth = 0, capacity = 1, rows = 0;
  int64_t x_head = 0, x_token = 0, x_batch = 0, y_head = 0, y_token = 0, y_batch = 0;
  int64_t pairs = 0, units = 0, copied = 0, row_blocks = 0;
  uint32_t aligned = 0, has_indices = 0, row_by_index = 0, circular = 0;
};

enum class What { kRotary, kScatter, kAppend };

What what_of(const Problem& p) {
  return p.op->name == "RotaryAppend" ? What::kAppend : p.op->name == "TensorScatter" ? What::kScatter : What::kRotary;
}

Support supports(const Problem& p) {
  if (p.has_epilogue()) return no("an epilogue");
  const DType t = p.input(0).dtype;
  const bool real = t == DType::kF32 || t == DType::kF16 || t == DType::kBF16;
  if (what_of(p) != What::kScatter && !real) return no("{} operands", name(t));
  if (what_of(p) == What::kAppend && p.input(1).dtype == DType::kF64) return no("tables in f64");
  if (storage_type(t).empty()) return no("operands of type {}", name(t));
  for (const std::vector<Operand>* operands : {&p.inputs, &p.outputs})
    for (const Operand& o : *operands)
      if (o.present() && !o.layout.is_row_major()) return no("an operand is not row-major");
  return yes();
}

bool interleaved(const Problem& p) { return what_of(p) == What::kRotary && p.flag("interleaved"); }

// Elements of 16 bytes, where whole numbers of them make a row's halves.
int per_of(const Problem& p, const Arguments& a) {
  int per = std::max(1, 128 / info(p.input(0).dtype).bits);
  if (interleaved(p)) return 1;
  while (per > 1 && (a.depth % (2 * per) || a.pairs % per)) per /= 2;
  return per;
}

Arguments arguments(const Problem& p, const Buffers* b) {
  Arguments a;
  const auto in = [&](int i) { return b && p.has(i) ? reinterpret_cast<uint64_t>(b->inputs[i]) : 0; };
  const auto out = [&](int o) { return b ? reinterpret_cast<uint64_t>(b->outputs[o]) : 0; };
  const Extents& x = p.input(0).shape();
  a.batch = x[0];
  if (what_of(p) == What::kRotary) {
    const bool packed = x.size() == 3;
    a.heads = packed ? p.integer("num_heads") : x[1], a.length = x[x.size() - 2];
    a.depth = packed ? x[2] / a.heads : x[3];
    a.x_head = packed ? a.depth : a.length * a.depth, a.x_token = packed ? a.heads * a.depth : a.depth;
    a.x_batch = a.heads * a.length * a.depth;
    a.y_head = a.x_head, a.y_token = a.x_token, a.y_batch = a.x_batch;
    const int64_t part = p.integer("rotary_embedding_dim");
    a.pairs = (part ? part : a.depth) / 2;
    a.rows = p.has(3) ? p.input(1).shape()[0] : a.batch * a.length;
    a.row_by_index = p.has(3);
    a.x = in(0), a.cos = in(1), a.sin = in(2), a.indices = in(3), a.y = out(0);
  } else if (what_of(p) == What::kScatter) {
    const Extents& update = p.input(1).shape();
    const int64_t given = p.integer("axis");
    const size_t axis = size_t(given < 0 ? given + int64_t(x.size()) : given);
    a.own = 1, a.depth = 1;
    for (size_t d = 1; d < axis; ++d) a.own *= x[d];
    for (size_t d = axis + 1; d < x.size(); ++d) a.depth *= x[d];
    a.length = update[axis], a.capacity = x[axis];
    a.x_head = a.length * a.depth, a.x_token = a.depth, a.x_batch = a.own * a.length * a.depth;
    a.has_indices = p.has(2), a.circular = p.string("mode") == "circular";
    a.x = in(1), a.indices = in(2), a.values = out(0), a.values_before = in(0);
  } else {
    a.heads = p.integer("num_heads"), a.own = p.integer("kv_num_heads");
    a.length = x[1], a.depth = p.input(3).shape()[3], a.capacity = p.input(3).shape()[2];
    a.pairs = a.depth / 2, a.rows = p.input(1).shape()[0];
    a.x_head = a.depth, a.x_token = x[2], a.x_batch = a.length * x[2];
    a.y_head = a.length * a.depth, a.y_token = a.depth, a.y_batch = a.heads * a.length * a.depth;
    a.has_indices = 1;
    a.x = in(0), a.cos = in(1), a.sin = in(2), a.indices = in(5), a.y = out(0);
    a.keys = out(1), a.values = out(2), a.keys_before = in(3), a.values_before = in(4);
  }
  const int64_t per = per_of(p, a);
  a.units = (a.depth + 2 * per - 1) / (2 * per);
  const int64_t all = a.heads + a.own * (what_of(p) == What::kAppend ? 2 : what_of(p) == What::kScatter ? 1 : 0);
  a.row_blocks = (a.batch * a.length * all * a.units + kThreads - 1) / kThreads;
  const bool in_place = a.values == a.values_before && a.keys == a.keys_before;
  if (!in_place) a.copied = a.batch * a.own * a.capacity * a.depth;
  const uint64_t bytes = uint64_t(per) * uint64_t(info(p.input(0).dtype).bits / 8);
  const uint64_t addresses = a.x | a.y | a.keys | a.values;
  a.aligned = addresses % std::min<uint64_t>(16, bytes) == 0 && (a.cos | a.sin) % 16 == 0;
  return a;
}

Source source(const Problem& p, const Tile&) {
  Source source;
  source.file = "rotary/rotary.cu";
  source.entry = "rotary";
  const DType table = what_of(p) == What::kScatter ? DType::kF32 : p.input(1).dtype;
  // Whatever is only moved, by its size.
  const DType moved = p.input(0).dtype;
  source.program =
      fmt::format("using T = {};\nusing Table = {};\n#define PER {}\n#define THREADS {}\n#define INTERLEAVED {}\n",
                  what_of(p) != What::kScatter ? storage_type(moved)
                  : info(moved).bits == 8      ? "unsigned char"
                  : info(moved).bits == 16     ? "f16"
                  : info(moved).bits == 32     ? "float"
                                               : "double",
                  storage_type(table), per_of(p, arguments(p, nullptr)), kThreads, int(interleaved(p)));
  return source;
}

double estimate(const Problem& p, const Tile&, const Ceilings& c) {
  const Cost cost = cost_of(p);
  return c.stream_ns(cost.read_bytes, cost.write_bytes, 1) + c.launch_ns.at(1, 1);
}

void launch_rotary(const KernelCall& call, const Buffers& buffers, StreamHandle* stream) {
  const Arguments a = arguments(call.problem, &buffers);
  const int64_t copying =
      a.copied ? std::clamp<int64_t>(a.copied / (8 * kThreads), 1, 8 * target().multiprocessors) : 0;
  if (a.row_blocks + copying == 0) return;
  launch(call.state_as<LoadedKernel>(), {a.row_blocks + copying}, kThreads, stream, {.dependent = true}, a);
}

}  // namespace

constinit const Kernel kRotary = {.name = "cuda.rotary",
                                  .op = "RotaryEmbedding",
                                  .device = DeviceKind::kCuda,
                                  .supports = supports,
                                  .estimate = estimate,
                                  .source = source,
                                  .launch = launch_rotary};

constinit const Kernel kTensorScatter = {.name = "cuda.tensor_scatter",
                                         .op = "TensorScatter",
                                         .device = DeviceKind::kCuda,
                                         .supports = supports,
                                         .estimate = estimate,
                                         .source = source,
                                         .launch = launch_rotary,
                                         .in_place = [](const Problem&, int input) { return input == 0; }};

constinit const Kernel kRotaryAppend = {.name = "cuda.rotary_append",
                                        .op = "RotaryAppend",
                                        .device = DeviceKind::kCuda,
                                        .supports = supports,
                                        .estimate = estimate,
                                        .source = source,
                                        .launch = launch_rotary};

}  // namespace ridgeline::cuda
