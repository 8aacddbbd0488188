#include "kernels/cpu/matmul/low/low_weights.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace ridgeline::cpu {

constexpr int64_t kMostProducts = 131072;

LowShape low_shape(const Problem& p) {
  LowShape s;
  const Extents &a = p.input(0).shape(), &q = p.input(1).shape();
  s.bits = int(p.integer("bits"));
  s.quantize = p.string("act") == "i8";
  s.a = p.input(0).dtype;
  s.q = p.input(1).dtype;
  s.y = p.output().dtype;
  s.k = a.back();
  s.n = q[0];
  s.m = 1;
  for (size_t i = 0; i + 1 < a.size(); ++i) s.m *= a[i];
  s.zero = p.has(3);
  s.min = p.has(4);
  s.offset = s.bits == 8 ? 128 : s.bits == 4 && !s.subtracts() ? 8 : 0;
  for (int i = 1; i < p.op_inputs; ++i)
    if (p.has(i) && !p.input(i).is_constant) s.refusal = "weights that are no constants";
  if (s.k == 0) s.refusal = "k is 0";
  for (const DType t : {s.a, s.y})
    if (t != DType::kF32 && t != DType::kBF16 && t != DType::kF16) s.refusal = fmt::format("{} activations", name(t));
  if (!p.output().layout.is_row_major() || !p.input(0).layout.is_row_major()) s.refusal = "a or y is strided";
  if (p.has_epilogue() && p.program->outputs.size() != 1) s.refusal = "an epilogue with more than one result";
  if (!s.refusal.empty()) return s;
  s.a_row_stride = s.k;
  s.groups = s.bits == 16 ? 1 : p.input(2).shape()[1];
  s.group = s.k / s.groups;
  s.act_block = p.integer("act_block") ? p.integer("act_block") : s.k;
  s.chunk = s.quantize ? std::gcd(s.group, s.act_block) : s.group;
  s.chunks = s.k / s.chunk;
  const int64_t together = s.bits == 4 ? 8 : 4;
  // A chunk's sum is i32: 131,072 products of 127 by 128 fill it.
  if (s.quantize && s.chunk > kMostProducts)
    s.refusal = fmt::format("sums of {} products may leave 32 bits: at most {}", s.chunk, kMostProducts);
  if (s.bits != 16 && s.chunk % together)
    s.refusal = fmt::format("groups of {} are no multiple of {}", s.chunk, together);
  if (s.quantize && s.k % s.act_block) s.refusal = fmt::format("k = {} is no multiple of act_block", s.k);
  for (int i : {5, 6})
    if (p.has(i) && s.groups % p.input(i).shape()[1]) s.refusal = "wider groups that do not hold whole ones";
  return s;
}

double low_estimate(const Problem& p, const Tile&, const Ceilings& ceilings) {
  const LowShape s = low_shape(p);
  const double flops = 2.0 * double(s.m) * double(s.n) * double(s.k);
  const double compute = ceilings.compute_ns(arithmetic_of(p), int64_t(flops), p.threads) * 2;
  return std::max(compute, ceilings.stream_ns(p.read_bytes(), p.write_bytes(), p.threads)) + 500;
}

int64_t low_packed_bytes(const Problem& p, int input) {
  const LowShape s = low_shape(p);
  if (input == 1) return s.panels() * s.panel_bytes();
  return s.panels() * kLowColumns * bytes_of(p.input(input).dtype, p.input(input).shape()[1]);
}

void low_pack(const Problem& p, int input, const Tensor& source, void* packed) {
  const LowShape s = low_shape(p);
  uint8_t* to = static_cast<uint8_t*>(packed);
  const uint8_t* from = static_cast<const uint8_t*>(source.data());
  std::memset(to, 0, size_t(low_packed_bytes(p, input)));
  const int64_t row = source.bytes() / std::max<int64_t>(1, s.n);
  for (int64_t col = 0; col < s.n; ++col, from += row) {
    uint8_t* panel = to + col / kLowColumns * (row * kLowColumns);
    const int64_t lane = col % kLowColumns;
    if (input != 1 || s.bits == 16) {
      const int64_t bytes = bytes_of(p.input(input).dtype, 1);
      for (int64_t t = 0; t * bytes < row; ++t)
        std::memcpy(panel + (t * kLowColumns + lane) * bytes, from + t * bytes, size_t(bytes));
    } else if (s.bits == 8) {
      for (int64_t t = 0; t < s.k; ++t) panel[(t / 4 * kLowColumns + lane) * 4 + t % 4] = from[t] ^ 0x80;
    } else {
      for (int64_t t = 0; t < s.k; ++t) {
        const uint8_t level = from[t / 2] >> (t % 2 * 4) & 15;
        panel[(t / 8 * kLowColumns + lane) * 4 + t % 4] |= uint8_t(t % 8 < 4 ? level : level << 4);
      }
    }
  }
}

}  // namespace ridgeline::cpu
