#include "kernels/cpu/matmul/dot/byte_table.h"

#include <numeric>
#include <vector>

#include "kernels/cpu/elementwise/program_block.h"
#include "kernels/cpu/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ridgeline::cpu {
namespace {

/// What leads to operand `to`, walking back no further than `from`: by operand.
std::vector<bool> needed_for(const Program& p, int to, int from) {
  std::vector<bool> needed(size_t(p.operands()), false);
  needed[size_t(to)] = true;
  for (int v = to; v >= p.first_result(); --v) {
    if (!needed[size_t(v)] || v == from) continue;
    const Instruction& in = p.code[size_t(v - p.first_result())];
    for (const int16_t operand : {in.a, in.b, in.c})
      if (operand >= 0) needed[size_t(operand)] = true;
  }
  return needed;
}

/// The code that leads to `to`. Operand `from`, if there is one, becomes input 0 of `part`, which has its inputs and
/// the program's constants; else inputs keep their numbers.
void take_code(const Program& p, int to, int from, Program& part) {
  const std::vector<bool> needed = needed_for(p, to, from);
  part.constants = p.constants;
  std::vector<int16_t> number(size_t(p.operands()), -1);
  for (int v = 0; v < p.first_constant(); ++v) number[size_t(v)] = int16_t(v);
  for (int v = p.first_constant(); v < p.first_result(); ++v)
    number[size_t(v)] = int16_t(v - p.first_constant() + part.first_constant());
  if (from >= 0) number[size_t(from)] = 0;
  for (int v = p.first_result(); v <= to; ++v) {
    if (!needed[size_t(v)] || v == from) continue;
    Instruction in = p.code[size_t(v - p.first_result())];
    for (int16_t* operand : {&in.a, &in.b, &in.c})
      if (*operand >= 0) *operand = number[size_t(*operand)];
    number[size_t(v)] = int16_t(part.operands());
    part.code.push_back(in);
  }
  part.outputs = {number[size_t(to)]};
}

void map_any(const ByteTable& table, uint8_t* y, int64_t y_row, int rows, int cols) {
  for (int r = 0; r < rows; ++r, y += y_row)
    for (int c = 0; c < cols; ++c) y[c] = table[y[c]];
}

#if defined(__x86_64__)
// Two look-ups of 128 bytes and a choice by the top bit.
__attribute__((target("avx512f,avx512bw,avx512vbmi"))) void map_vbmi(const ByteTable& table, uint8_t* y, int64_t y_row,
                                                                     int rows, int cols) {
  const __m512i t0 = _mm512_loadu_si512(table.data()), t1 = _mm512_loadu_si512(table.data() + 64),
                t2 = _mm512_loadu_si512(table.data() + 128), t3 = _mm512_loadu_si512(table.data() + 192);
  for (int r = 0; r < rows; ++r, y += y_row) {
    for (int c = 0; c < cols; c += 64) {
      const __mmask64 there = cols - c >= 64 ? ~uint64_t(0) : (uint64_t(1) << (cols - c)) - 1;
      const __m512i at = _mm512_maskz_loadu_epi8(there, y + c);
      const __m512i low = _mm512_permutex2var_epi8(t0, at, t1), high = _mm512_permutex2var_epi8(t2, at, t3);
      _mm512_mask_storeu_epi8(y + c, there, _mm512_mask_blend_epi8(_mm512_movepi8_mask(at), low, high));
    }
  }
}
#endif

}  // namespace

std::optional<ByteTail> byte_tail(const Program& p) {
  if (p.outputs.size() != 1 || !is_byte(p.output_dtype())) return std::nullopt;
  const int to = p.outputs[0];
  for (int v = p.first_result(); v < to; ++v) {
    if (p.code[size_t(v - p.first_result())].op != ScalarOp::kCast || !is_byte(p.dtype_of(v))) continue;
    const std::vector<bool> needed = needed_for(p, to, v);
    bool alone = needed[size_t(v)];
    for (int i = 0; i < p.first_constant(); ++i) alone = alone && !needed[size_t(i)];
    if (!alone) continue;
    Program tail;
    tail.inputs = {{"q", p.dtype_of(v)}};
    take_code(p, to, v, tail);
    if (!PreparedProgram::reject(tail).empty()) return std::nullopt;
    ByteTail out;
    out.head.inputs = p.inputs;
    take_code(p, v, -1, out.head);
    ByteTable bytes;
    std::iota(bytes.begin(), bytes.end(), uint8_t(0));
    const BlockInput from{bytes.data(), 1};
    const BlockOutput result{out.table.data(), 1};
    run_block(PreparedProgram(tail), int64_t(bytes.size()), &from, &result);
    return out;
  }
  return std::nullopt;
}

MapBytes map_bytes() {
#if defined(__x86_64__)
  if (active_isa() == Isa::kAvx512 && has_feature("avx512_vbmi")) return map_vbmi;
#endif
  return map_any;
}

}  // namespace ridgeline::cpu
