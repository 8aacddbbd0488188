#include "kernels/cuda/matvec/rows_shape.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "kernels/cuda/program_source.h"

namespace ridgeline::cuda {
namespace {

// One stride over axes `begin` to `end` of a layout, or nothing.
std::optional<int64_t> merged(const Layout& layout, int begin, int end) {
  std::optional<int64_t> stride;
  int64_t below = 1;
  for (int a = end; a-- > begin;) {
    const int64_t extent = layout.shape[size_t(a)];
    if (extent == 1) continue;
    if (!stride)
      stride = layout.strides[size_t(a)];
    else if (layout.strides[size_t(a)] != *stride * below)
      return std::nullopt;
    below *= extent;
  }
  return stride.value_or(0);
}

bool is_half(DType t) { return t == DType::kF16 || t == DType::kBF16; }

// y's rows and columns; the axes must lie in their own order, or the epilogue's operands would be walked in another.
void place_output(const Problem& p, RowsShape& s) {
  const Layout& y = p.output().layout;
  s.m = 1;
  for (int a = 0; a < s.row_axes; ++a) s.m *= y.shape[size_t(a)];
  for (int a = 0; a + 1 < y.rank(); ++a)
    if (y.strides[size_t(a)] < y.strides[size_t(a) + 1] && !y.is_row_major())
      s.refusal = "y's axes are in another order";
  const auto row = merged(y, 0, s.row_axes);
  if (!row) s.refusal = "y's rows have no one stride";
  s.y_row = row.value_or(0);
  s.y_column = s.row_axes < y.rank() ? y.strides.back() : 1;
  if (s.refusal.empty()) s.refusal = epilogue_reject(p, s.row_axes);
}

}  // namespace

RowsShape rows_of_product(const Problem& p) {
  RowsShape s;
  const Operand &a = p.input(0), &b = p.input(1);
  s.x = a.dtype, s.w = b.dtype;
  if ((!is_half(s.x) && s.x != DType::kF32) || s.w != s.x)
    s.refusal = fmt::format("{} times {}: bf16, f16 or f32 is wanted", name(s.x), name(s.w));
  s.bits = info(s.w).bits;
  if (!b.is_constant) s.refusal = "b is no constant";
  const int ar = a.layout.rank(), br = b.layout.rank();
  for (int i = 0; i + 2 < br; ++i)
    if (b.shape()[size_t(i)] != 1) s.refusal = "b is a batch of matrices";
  if (!s.refusal.empty()) return s;
  const bool flags = p.op->name == "Gemm" || p.op->name == "FusedMatMul";
  const bool trans_a = flags && p.flag("transA") && ar > 1, trans_b = flags && p.flag("transB") && br > 1;
  if (flags) s.alpha = p.number("alpha");
  s.k = b.shape()[size_t(br == 1 ? 0 : trans_b ? br - 1 : br - 2)];
  s.n = br == 1 ? 1 : b.shape()[size_t(trans_b ? br - 2 : br - 1)];
  s.w_row = trans_b ? s.k : 1;
  s.w_k = trans_b || br == 1 ? 1 : s.n;
  s.row_axes = p.output().layout.rank() - (br > 1);
  place_output(p, s);
  if (!s.refusal.empty()) return s;
  s.x_k = a.layout.strides[size_t(trans_a ? ar - 2 : ar - 1)];
  std::optional<int64_t> row = 0;
  if (trans_a && ar == 2)
    row = a.layout.strides[1];
  else if (trans_a)
    row = s.m == a.shape()[size_t(ar - 1)] ? std::optional(a.layout.strides.back()) : std::nullopt;
  else if (ar > 1)
    row = merged(a.layout, 0, ar - 1);
  if (!row) s.refusal = "a's rows have no one stride";
  s.x_row = row.value_or(0);
  if (p.op->name == "Gemm" && p.has(2) && p.number("beta") != 0) {
    const Layout& c = p.input(2).layout;
    s.c_input = 2;
    s.beta = p.number("beta");
    if (c.rank() > 0 && c.shape.back() != 1) s.c_column = c.strides.back();
    if (c.rank() > 1 && c.shape[0] != 1) s.c_row = c.strides[0];
  }
  return s;
}

RowsShape plain_low_bit(const Problem& p) {
  RowsShape s;
  const Operand& a = p.input(0);
  s.x = a.dtype, s.w = p.input(1).dtype;
  s.bits = int(p.integer("bits"));
  s.round_x = p.string("act") == "bf16" && s.x != DType::kBF16;
  if (!is_half(s.x) && s.x != DType::kF32) s.refusal = fmt::format("{} activations", name(s.x));
  for (int i = 1; i < p.op_inputs; ++i)
    if (p.has(i) && !p.input(i).layout.is_row_major()) s.refusal = "strided weights";
  if (!s.refusal.empty()) return s;
  s.k = a.shape().back();
  s.n = p.input(1).shape()[0];
  s.w_row = s.k, s.w_k = 1;
  s.row_axes = p.output().layout.rank() - 1;
  place_output(p, s);
  if (!s.refusal.empty()) return s;
  s.x_k = a.layout.strides.back();
  const auto row = merged(a.layout, 0, a.layout.rank() - 1);
  if (!row) s.refusal = "a's rows have no one stride";
  s.x_row = row.value_or(0);
  return s;
}

RowsShape rows_of_low_bit(const Problem& p) {
  RowsShape s = plain_low_bit(p);
  if (p.string("act") == "i8") s.refusal = "activations are to be quantized";
  for (int i = 1; i < p.op_inputs; ++i)
    if (p.has(i) && !p.input(i).is_constant) s.refusal = "weights that are no constants";
  if (!s.scaled() || !s.refusal.empty()) return s;
  s.groups = p.input(2).shape()[1];
  const int64_t group = s.k / s.groups;
  if (s.groups > 1) {
    if (group % 32 || (group > 32 && group % 64))
      s.refusal = fmt::format("groups of {}: 32 or a multiple of 64 is wanted", group);
    s.halves = int(group / 32);
  }
  for (int i : {5, 6})
    if (p.has(i) && s.groups % p.input(i).shape()[1]) s.refusal = "wider groups that do not hold whole ones";
  return s;
}

RowsShape rows_shape(const Problem& p) {
  return p.op->name == "LowBitMatMul" ? rows_of_low_bit(p) : rows_of_product(p);
}

void pack_rows(const RowsShape& s, const Tensor& source, void* packed) {
  std::memset(packed, 0, size_t(s.weight_bytes()));
  const uint8_t* const bytes = static_cast<const uint8_t*>(source.data());
  uint8_t* const to = static_cast<uint8_t*>(packed);
  const int64_t words = s.bits / 4;  // of 16 bytes, a lane and step
  for (int64_t n = 0; n < s.n; ++n) {
    const int64_t g = n % 8, upper = n / 8 % 2;  // registers 0 and 2 are row g, 1 and 3 row g + 8
    for (int64_t k = 0; k < s.k; ++k) {
      const int64_t half = k / 32 % 2, t = k / 8 % 4, j = k / 4 % 2, pair = k / 2 % 2, e = k % 2;
      uint8_t* const lane = to + ((n / 16 * s.steps() + k / 64) * words * 32 + 4 * g + t) * 16;
      const int64_t at = n * s.w_row + k * s.w_k;
      if (s.bits == 32) {
        std::memcpy(lane + ((half * 2 + j) * 2 + pair) * 512 + (upper * 2 + e) * 4, bytes + at * 4, 4);
      } else if (s.bits == 16) {
        std::memcpy(lane + (half * 2 + j) * 512 + (pair * 2 + upper) * 4 + e * 2, bytes + at * 2, 2);
      } else if (s.bits == 8) {
        lane[half * 512 + (j * 2 + pair) * 4 + upper + 2 * e] = bytes[at];
      } else {
        const uint8_t level = bytes[at / 2] >> (at % 2 * 4) & 15;
        const int64_t nibble = pair * 2 + upper + 4 * e;
        lane[(half * 2 + j) * 4 + nibble / 2] |= uint8_t(level << (nibble % 2 * 4));
      }
    }
  }
}

int64_t row_scale_bytes(const RowsShape& s, const Operand& operand) {
  return s.tiles() * 16 * operand.shape()[1] * (info(operand.dtype).bits / 8);
}

void pack_row_scales(const RowsShape& s, const Tensor& source, void* packed) {
  const int64_t groups = source.shape()[1], size = info(source.dtype()).bits / 8;
  std::memset(packed, 0, size_t(s.tiles() * 16 * groups * size));
  const uint8_t* from = static_cast<const uint8_t*>(source.data());
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t group = 0; group < groups; ++group, from += size)
      std::memcpy(static_cast<uint8_t*>(packed) + (((n / 16 * groups + group) * 8 + n % 8) * 2 + n / 8 % 2) * size,
                  from, size_t(size));
}

}  // namespace ridgeline::cuda
