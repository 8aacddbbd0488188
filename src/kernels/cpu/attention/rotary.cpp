// cpu.rotary, cpu.rotary_append, cpu.tensor_scatter: rows turned by given angles, and rows written into caches. Where a
// cache's address is the same before and after, the rows alone are written.
#include <cstring>

#include "kernels/cpu/attention/attention_kernels.h"
#include "ridgeline/dtype.h"

namespace ridgeline::cpu {
namespace {

struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};
float load(float x) { return x; }
float load(Half x) { return f16_to_f32(x.bits); }
float load(Brain x) { return bf16_to_f32(x.bits); }
void store(float& to, float x) { to = x; }
void store(Half& to, float x) { to.bits = f32_to_f16(x); }
void store(Brain& to, float x) { to.bits = f32_to_bf16(x); }

template <typename Body>
void with_type(DType dtype, const Body& body) {
  if (dtype == DType::kF32) return body(float());
  if (dtype == DType::kF16) return body(Half());
  return body(Brain());
}

bool is_real(DType t) { return t == DType::kF32 || t == DType::kF16 || t == DType::kBF16; }

Support dense(const Problem& p, bool floats) {
  if (p.has_epilogue()) return no("an epilogue");
  for (const std::vector<Operand>* operands : {&p.inputs, &p.outputs}) {
    for (const Operand& o : *operands) {
      if (!o.present()) continue;
      if (!o.layout.is_row_major()) return no("an operand is not row-major");
      if (floats && is_float(o.dtype) && !is_real(o.dtype)) return no("{} operands", name(o.dtype));
    }
  }
  return yes();
}

double estimate_bytes(const Problem& p, const Tile&, const Ceilings& c) {
  const Cost cost = cost_of(p);
  return c.stream_ns(cost.read_bytes, cost.write_bytes, p.threads) + c.launch_ns.at(p.threads, c.cores);
}

/// One head's row: `pairs` pairs turned, `rest` elements copied.
template <typename T, typename Table>
void turn(const T* from, T* to, const Table* cos, const Table* sin, int64_t pairs, int64_t rest, bool interleaved) {
  for (int64_t p = 0; p < pairs; ++p) {
    const int64_t a = interleaved ? 2 * p : p, b = interleaved ? 2 * p + 1 : p + pairs;
    const float x = load(from[a]), y = load(from[b]), c = load(cos[p]), s = load(sin[p]);
    store(to[a], c * x - s * y);
    store(to[b], s * x + c * y);
  }
  if (rest > 0) std::memcpy(to + 2 * pairs, from + 2 * pairs, size_t(rest) * sizeof(T));
}

int64_t index_at(const void* indices, int64_t at) { return indices ? static_cast<const int64_t*>(indices)[at] : 0; }

// ---- RotaryEmbedding

void run_rotary(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Problem& p = call.problem;
  const Extents& shape = p.input(0).shape();
  const bool packed = shape.size() == 3, interleaved = p.flag("interleaved");
  const int64_t batch = shape[0], length = shape[shape.size() - 2], heads = packed ? p.integer("num_heads") : shape[1],
                depth = packed ? shape[2] / heads : shape[3];
  const int64_t part = p.integer("rotary_embedding_dim"), pairs = (part ? part : depth) / 2;
  const void* const positions = p.has(3) ? buffers.inputs[3] : nullptr;
  const int64_t rows = p.input(1).shape()[0];
  with_type(p.input(0).dtype, [&](auto type) {
    using T = decltype(type);
    const T* const x = static_cast<const T*>(buffers.inputs[0]);
    const T* const cos = static_cast<const T*>(buffers.inputs[1]);
    const T* const sin = static_cast<const T*>(buffers.inputs[2]);
    T* const y = static_cast<T*>(buffers.outputs[0]);
    pool.run(batch * heads * length, 8, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        // In the order of memory.
        const int64_t inner = packed ? heads : length;
        const int64_t b = i / (heads * length), s = packed ? i / inner % length : i % inner;
        const int64_t row = positions ? index_at(positions, b * length + s) : b * length + s;
        if (positions && (row < 0 || row >= rows))
          fail(ErrorCode::kBadInput, "position {} of a table of {}", row, rows);
        turn(x + i * depth, y + i * depth, cos + row * pairs, sin + row * pairs, pairs, depth - 2 * pairs, interleaved);
      }
    });
  });
}

// ---- TensorScatter

Support scatter_supports(const Problem& p) {
  if (info(p.input(0).dtype).bits < 8) return no("elements of less than a byte");
  return dense(p, false);
}

void run_scatter(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Problem& p = call.problem;
  const Extents &past = p.input(0).shape(), &update = p.input(1).shape();
  const int64_t given = p.integer("axis");
  const size_t axis = size_t(given < 0 ? given + int64_t(past.size()) : given);
  const bool circular = p.string("mode") == "circular";
  int64_t outer = 1, inner = bytes_of(p.input(0).dtype, 1);
  for (size_t a = 1; a < axis; ++a) outer *= past[a];
  for (size_t a = axis + 1; a < past.size(); ++a) inner *= past[a];
  const int64_t capacity = past[axis], length = update[axis];
  if (inner == 0) return;
  char* const to = static_cast<char*>(buffers.outputs[0]);
  const char* const from = static_cast<const char*>(buffers.inputs[1]);
  if (to != buffers.inputs[0] && p.input(0).bytes() > 0) std::memcpy(to, buffers.inputs[0], size_t(p.input(0).bytes()));
  const void* const indices = p.has(2) ? buffers.inputs[2] : nullptr;
  pool.run(past[0] * outer, 4, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t s = 0; s < length; ++s) {
        int64_t row = index_at(indices, i / outer) + s;
        if (circular && row >= 0) row %= capacity;
        if (row < 0 || row >= capacity) fail(ErrorCode::kBadInput, "row {} of a cache of {}", row, capacity);
        std::memcpy(to + (i * capacity + row) * inner, from + (i * length + s) * inner, size_t(inner));
      }
    }
  });
}

// ---- RotaryAppend

void run_append(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Problem& p = call.problem;
  const int64_t batch = p.input(0).shape()[0], length = p.input(0).shape()[1], heads = p.integer("num_heads"),
                own = p.integer("kv_num_heads"), capacity = p.input(3).shape()[2], depth = p.input(3).shape()[3],
                all = heads + 2 * own, rows = p.input(1).shape()[0];
  for (int cache : {0, 1})
    if (buffers.outputs[1 + cache] != buffers.inputs[3 + cache] && p.input(3 + cache).bytes() > 0)
      std::memcpy(buffers.outputs[1 + cache], buffers.inputs[3 + cache], size_t(p.input(3 + cache).bytes()));
  with_type(p.input(0).dtype, [&](auto type) {
    using T = decltype(type);
    with_type(p.input(1).dtype, [&](auto table) {
      using Table = decltype(table);
      pool.run(batch * length * all, 8, [&](int64_t begin, int64_t end, int) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t h = i % all, s = i / all % length, b = i / all / length;
          const int64_t row = index_at(buffers.inputs[5], b) + s;
          if (row < 0 || row >= capacity || row >= rows)
            fail(ErrorCode::kBadInput, "row {} of caches of {} and tables of {}", row, capacity, rows);
          const T* const from = static_cast<const T*>(buffers.inputs[0]) + i * depth;
          const int part = h < heads ? 0 : h < heads + own ? 1 : 2;
          const int64_t at =
              part == 0 ? (b * heads + h) * length + s : (b * own + h - heads - (part == 2 ? own : 0)) * capacity + row;
          T* const to = static_cast<T*>(buffers.outputs[part]) + at * depth;
          if (part == 2)
            std::memcpy(to, from, size_t(depth) * sizeof(T));
          else
            turn(from, to, static_cast<const Table*>(buffers.inputs[1]) + row * (depth / 2),
                 static_cast<const Table*>(buffers.inputs[2]) + row * (depth / 2), depth / 2, 0, false);
        }
      });
    });
  });
}

}  // namespace

constinit const Kernel kRotaryKernel = {
    .name = "cpu.rotary",
    .op = "RotaryEmbedding",
    .supports = [](const Problem& p) { return dense(p, true); },
    .estimate = estimate_bytes,
    .run = run_rotary,
};

constinit const Kernel kTensorScatterKernel = {
    .name = "cpu.tensor_scatter",
    .op = "TensorScatter",
    .supports = scatter_supports,
    .estimate = estimate_bytes,
    .run = run_scatter,
    .in_place = [](const Problem&, int input) { return input == 0; },
};

constinit const Kernel kRotaryAppendKernel = {
    .name = "cpu.rotary_append",
    .op = "RotaryAppend",
    .supports = [](const Problem& p) { return dense(p, true); },
    .estimate = estimate_bytes,
    .run = run_append,
};

}  // namespace ridgeline::cpu
