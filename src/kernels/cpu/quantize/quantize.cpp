// cpu.quantize, cpu.dequantize, cpu.dynamic_quantize: f32 to 8 bits and back, a scale for the tensor or for each slice
// along an axis.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/quantize/quantize_kernels.h"
#include "kernels/cpu/quantize/quantize_rows.h"

namespace ridgeline::cpu {
namespace {

constexpr int64_t kGrain = 16384;  // elements worth a thread's start

/// [outer, slices, inner]: slice s has scale s. One scale: one slice.
struct Slices {
  int64_t outer = 1, count = 1, inner = 1;
};
Slices slices_of(const Problem& p) {
  Slices s;
  const Extents& shape = p.input(0).shape();
  if (p.input(1).elements() == 1) {
    s.inner = p.input(0).elements();
    return s;
  }
  const int64_t given = p.integer("axis");
  const size_t axis = size_t(given < 0 ? given + int64_t(shape.size()) : given);
  for (size_t a = 0; a < shape.size(); ++a) (a < axis ? s.outer : a == axis ? s.count : s.inner) *= shape[a];
  return s;
}

Support supports_scaled(const Problem& p) {
  const bool quantizes = p.op->name == "QuantizeLinear";
  const DType real = quantizes ? p.input(0).dtype : p.output().dtype,
              narrow = quantizes ? p.output().dtype : p.input(0).dtype;
  if (real != DType::kF32 || p.input(1).dtype != DType::kF32)
    return no("{} with a scale in {}: f32 is wanted", name(real), name(p.input(1).dtype));
  if (!is_byte(narrow)) return no("{}: u8 or i8 is wanted", name(narrow));
  if (p.integer("block_size") != 0) return no("scales by blocks");
  if (quantizes && p.integer("precision") > 1) return no("a division in another type than f32");
  for (const Operand& o : p.inputs)
    if (o.present() && !o.layout.is_row_major()) return no("strided operands");
  if (!p.output().layout.is_row_major()) return no("a strided result");
  const Slices s = slices_of(p);
  if (s.count > 1 && s.inner == 1) return no("a scale for each element of the last axis");
  return yes();
}

double estimate(const Problem& p, const Tile&, const Ceilings& ceilings) {
  return ceilings.stream_ns(p.read_bytes(), p.write_bytes(), p.threads) * 1.2 + 200;
}

int32_t byte_at(const void* data, DType dtype, int64_t at) {
  const uint8_t byte = static_cast<const uint8_t*>(data)[at];
  return dtype == DType::kI8 ? int8_t(byte) : byte;
}

void run_scaled(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const Problem& p = call.problem;
  const Slices s = slices_of(p);
  if (s.outer * s.count * s.inner == 0) return;
  const bool quantizes = p.op->name == "QuantizeLinear", zero = p.has(2);
  const float* scales = static_cast<const float*>(buffers.inputs[1]);
  const bool is_signed = (quantizes ? p.output() : p.input(0)).dtype == DType::kI8;
  const int64_t rows = s.outer * s.count;
  // One long row is cut; many short ones are shared out.
  const int64_t piece = rows == 1 ? kGrain : s.inner, pieces = (rows * s.inner + piece - 1) / piece;
  const auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t at = i * piece, n = std::min(piece, rows * s.inner - at), slice = rows == 1 ? 0 : i % s.count;
      const int32_t z = zero ? byte_at(buffers.inputs[2], p.input(2).dtype, slice) : 0;
      if (quantizes)
        quantize_row(static_cast<const float*>(buffers.inputs[0]) + at, n, scales[slice], z, is_signed, false,
                     static_cast<uint8_t*>(buffers.outputs[0]) + at);
      else
        dequantize_row(static_cast<const uint8_t*>(buffers.inputs[0]) + at, n, scales[slice], z, is_signed,
                       static_cast<float*>(buffers.outputs[0]) + at);
    }
  };
  pool.run(pieces, std::max<int64_t>(1, kGrain / piece), body);
}

// ---- dynamic

Support supports_dynamic(const Problem& p) {
  if (!p.input(0).layout.is_row_major() || !p.output().layout.is_row_major()) return no("strided operands");
  return yes();
}

constexpr int kMostPieces = 64;
int64_t workspace_dynamic(const Problem&, const Tile&) { return kMostPieces * 2 * int64_t(sizeof(float)); }

// In f32 and in the standard's order (its function body): the range with 0 in it, over 255 steps.
void run_dynamic(const KernelCall& call, const Buffers& buffers, const ThreadPool& pool) {
  const int64_t n = call.problem.input(0).elements();
  const float* x = static_cast<const float*>(buffers.inputs[0]);
  uint8_t* y = static_cast<uint8_t*>(buffers.outputs[0]);
  float* ranges = static_cast<float*>(buffers.workspace);
  const int64_t pieces = std::clamp<int64_t>(n / kGrain, 1, kMostPieces);
  const auto look = [=](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      ranges[2 * i] = ranges[2 * i + 1] = 0;
      const int64_t from = n * i / pieces;
      range_of_row(x + from, n * (i + 1) / pieces - from, ranges + 2 * i, ranges + 2 * i + 1);
    }
  };
  pool.run(pieces, 1, look);
  float least = 0, most = 0;
  for (int64_t i = 0; i < pieces; ++i) {
    least = std::min(least, ranges[2 * i]);
    most = std::max(most, ranges[2 * i + 1]);
  }
  const float scale = (most - least) / 255.0f;
  const float zero = scale == 0 ? 0.0f : std::nearbyint(std::clamp(0 - least / scale, 0.0f, 255.0f));
  *static_cast<float*>(buffers.outputs[1]) = scale;
  *static_cast<uint8_t*>(buffers.outputs[2]) = uint8_t(zero);
  const auto round = [=](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t from = n * i / pieces;
      quantize_row(x + from, n * (i + 1) / pieces - from, scale, int32_t(zero), false, scale == 0, y + from);
    }
  };
  pool.run(pieces, 1, round);
}

constexpr Kernel scaled(std::string_view name, std::string_view op) {
  return {.name = name, .op = op, .supports = supports_scaled, .estimate = estimate, .run = run_scaled};
}

}  // namespace

constinit const Kernel kQuantizeKernel = scaled("cpu.quantize", "QuantizeLinear");
constinit const Kernel kDequantizeKernel = scaled("cpu.dequantize", "DequantizeLinear");
constinit const Kernel kDynamicQuantizeKernel = {.name = "cpu.dynamic_quantize",
                                                 .op = "DynamicQuantizeLinear",
                                                 .supports = supports_dynamic,
                                                 .estimate = estimate,
                                                 .workspace = workspace_dynamic,
                                                 .run = run_dynamic};

}  // namespace ridgeline::cpu
