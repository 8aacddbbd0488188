#include "kernels/cpu/matmul/dot/dot_epilogue.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kernels/cpu/matmul/dot/dot_micro.h"

namespace ridgeline::cpu {
namespace {

/// `program` without a leading sum with an i32 operand, which the terms of the sums take: what the interpreter runs.
Program without_integer_bias(const Program& program) {
  Program p = program;
  for (size_t i = 0; i < p.code.size(); ++i) {
    const Instruction& in = p.code[i];
    const int result = p.first_result() + int(i);
    if (in.op != ScalarOp::kAdd || in.dtype != DType::kI32 || (in.a == 0) == (in.b == 0)) continue;
    for (Instruction& other : p.code)
      for (int16_t* operand : {&other.a, &other.b, &other.c})
        if (*operand == result) *operand = 0;
    p.code[i] = {ScalarOp::kCast, DType::kF32, 0};  // dead now
    break;
  }
  return p;
}

/// The i32 operand that joins the sums before anything else reads them; nothing: none.
std::optional<int> integer_bias_of(const Program& p, const std::vector<DotRider>& riders) {
  int readers = 0, found = -1;
  for (const Instruction& in : p.code) {
    if (in.a != 0 && in.b != 0 && in.c != 0) continue;
    ++readers;
    if (in.op == ScalarOp::kAdd && in.dtype == DType::kI32) found = in.a == 0 ? in.b : in.a;
  }
  if (readers != 1 || found <= 0 || found >= p.first_constant()) return std::nullopt;
  const DotRider rider = riders[size_t(found)];
  return rider == DotRider::kScalar || rider == DotRider::kColumns ? std::optional(found) : std::nullopt;
}

float load_number(DType dtype, const void* data, int64_t at) { return float(load_f64(dtype, data, at)); }

}  // namespace

std::string DotEpilogue::reject(const Problem& problem, bool integers, std::vector<DotRider> riders) {
  const DType y = problem.output().dtype;
  if (!problem.has_epilogue()) {
    if (integers ? y == DType::kI32 : y == DType::kF32 || y == DType::kBF16) return {};
    return fmt::format("y is {}", name(y));
  }
  const Program& p = *problem.program;
  if (p.outputs.size() != 1) return fmt::format("the epilogue has {} outputs", p.outputs.size());
  if (p.inputs.size() > kMostOperands) return fmt::format("the epilogue has {} operands", p.inputs.size() - 1);
  if (y != DType::kF32 && y != DType::kBF16 && !is_byte(y)) return fmt::format("y is {}", name(y));
  riders.insert(riders.begin(), DotRider::kOther);
  if (const std::optional<ByteTail> tail = byte_tail(p); tail && read_dot_chain(tail->head, riders, integers))
    return {};
  if (read_dot_chain(p, riders, integers)) return {};
  std::string why = PreparedProgram::reject(p);
  if (why.empty() || !integers || !integer_bias_of(p, riders)) return why;
  return PreparedProgram::reject(without_integer_bias(p));
}

DotEpilogue::DotEpilogue(const Problem& problem, bool integers, std::vector<DotRider> riders, int bias, int64_t columns)
    : integers_(integers), columns_(columns), bias_(bias), y_(problem.output().dtype) {
  if (bias_ >= 0) bias_dtype_ = problem.input(bias_).dtype;
  if (!problem.has_epilogue()) {
    chain_.links.resize(integers ? 0 : 1);
    return;
  }
  const Program& p = *problem.program;
  operand_count_ = int(p.inputs.size()) - 1;
  riders.insert(riders.begin(), DotRider::kOther);
  for (size_t i = 0; i < p.inputs.size(); ++i)
    sources_.push_back({i == 0 ? -1 : problem.op_inputs + int(i) - 1, p.inputs[i].dtype, riders[i]});
  if (const std::optional<ByteTail> tail = byte_tail(p)) {
    if (const std::optional<DotChain> chain = read_dot_chain(tail->head, riders, integers)) {
      chain_ = *chain;
      y_ = tail->head.output_dtype();
      table_ = std::make_shared<const ByteTable>(tail->table);
      map_ = map_bytes();
      return;
    }
  }
  if (std::optional<DotChain> chain = read_dot_chain(p, riders, integers)) {
    chain_ = *chain;
    return;
  }
  if (PreparedProgram::reject(p).empty()) {
    program_ = std::make_shared<const PreparedProgram>(p);
  } else {
    chain_.integer_bias = {*integer_bias_of(p, riders), 0, true};
    program_ = std::make_shared<const PreparedProgram>(without_integer_bias(p));
  }
}

int64_t DotEpilogue::bytes() const {
  // The bias, the integer bias, and at most three lines a link.
  return padded() * 4 * (2 + 3 * int64_t(chain_.links.size()));
}

float DotEpilogue::number_of(const DotValue& value, const Buffers& buffers) const {
  if (value.input < 0) return float(value.number);
  const Source& s = sources_[size_t(value.input)];
  return load_number(s.dtype, buffers.inputs[s.input], 0);
}

DotLine DotEpilogue::line_of(const DotValue& value, const Buffers& buffers, float*& to) const {
  if (!value.given) return {};
  float* line = to;
  if (value.input < 0 || sources_[size_t(value.input)].rider == DotRider::kScalar) {
    *line = number_of(value, buffers);
    to += 16;
    return {line, 0};
  }
  const Source& s = sources_[size_t(value.input)];
  const void* from = buffers.inputs[s.input];
  if (s.dtype == DType::kF32)
    std::copy_n(static_cast<const float*>(from), columns_, line);
  else
    for (int64_t c = 0; c < columns_; ++c) line[c] = load_number(s.dtype, from, c);
  std::fill(line + columns_, line + padded(), 0.0f);
  to += padded();
  return {line, 1};
}

void DotEpilogue::bind(const Buffers& buffers, void* workspace, Bound& bound) const {
  float* to = static_cast<float*>(workspace);
  bound.count = int(chain_.links.size());
  for (int k = 0; k < bound.count; ++k) {
    const DotChain::Link& link = chain_.links[size_t(k)];
    DotSegment& s = bound.segments[k];
    s = link.fixed;
    s.before = line_of(link.before, buffers, to);
    s.scale = line_of(link.scale, buffers, to);
    s.bias = line_of(link.bias, buffers, to);
    if (s.r_affine) {
      s.r_before = link.r_before.given ? number_of(link.r_before, buffers) : 0;
      s.r_scale = link.r_scale.given ? number_of(link.r_scale, buffers) : 1;
      s.r_bias = link.r_bias.given ? number_of(link.r_bias, buffers) : 0;
    }
    if (!s.quantizes) continue;
    s.step = link.step.given ? number_of(link.step, buffers) : 1;
    s.zero = link.zero.given ? int32_t(number_of(link.zero, buffers)) : 0;
    s.inverse = s.step;
    if (s.divides) {
      // Where the reciprocal is a normal number well within the range; else by division.
      const float inverse = 1 / s.step, size = std::fabs(inverse);
      s.inverse = size > 1e-18f && size < 1e18f ? inverse : 0;
    }
  }
  tame(bound);
  for (int k = 0; k < bound.count; ++k) bound.residual[k] = chain_.links[size_t(k)].residual - 1;
  if (bias_ >= 0) {  // joins the sums before the program
    for (int64_t c = 0; c < columns_; ++c) to[c] = load_number(bias_dtype_, buffers.inputs[bias_], c);
    std::fill(to + columns_, to + padded(), 0.0f);
    DotSegment& first = bound.segments[0];
    if (bound.count == 0 || first.before.data || first.scale.data || first.bias.data || first.fused) {
      for (int k = bound.count++; k > 0; --k)
        bound.segments[k] = bound.segments[k - 1], bound.residual[k] = bound.residual[k - 1];
      first = {};
      bound.residual[0] = -1;
    }
    first.bias = {to, 1};
    to += padded();
  }
  bound.segments[0].bf16_instructions = bf16_instructions_;
  if (chain_.integer_bias.given) {
    int32_t* line = reinterpret_cast<int32_t*>(to);
    const DotValue& value = chain_.integer_bias;
    for (int64_t c = 0; c < padded(); ++c) {
      if (value.input < 0)
        line[c] = int32_t(value.number);
      else
        line[c] = c < columns_ ? static_cast<const int32_t*>(buffers.inputs[sources_[size_t(value.input)].input])
                                     [sources_[size_t(value.input)].rider == DotRider::kScalar ? 0 : c]
                               : 0;
    }
    bound.integer_bias = line;
  }
}

namespace {

/// Largest magnitude of a line; infinite if it holds a NaN.
double largest(const DotLine& line, int64_t columns, double absent) {
  if (!line.data) return absent;
  uint32_t most = 0;  // as bits: their order is that of magnitudes, infinity and NaN last
  const int64_t n = line.stride ? columns : 1;
  for (int64_t c = 0; c < n; ++c) most = std::max(most, std::bit_cast<uint32_t>(line.data[c]) & 0x7fffffff);
  return most < 0x7f800000 ? double(std::bit_cast<float>(most)) : std::numeric_limits<double>::infinity();
}

}  // namespace

// Sums of 32 bits bound what follows: with ordinary scales no infinity or NaN can come up, and the quantization needs
// no guards.
void DotEpilogue::tame(Bound& bound) const {
  constexpr double kMost = 1e30;
  if (!integers_) return;
  double size = 0x1p31;
  for (int k = 0; k < bound.count; ++k) {
    DotSegment& s = bound.segments[k];
    if (!s.quantizes || !s.divides || s.inverse == 0 || s.step <= 0 || s.round_bias || s.round_residual ||
        s.round_clamp)
      return;
    if (s.function != DotFunction::kNone) return;
    size = (size + largest(s.before, columns_, 0)) * largest(s.scale, columns_, 1) + largest(s.bias, columns_, 0);
    if (s.has_residual) {
      if (!is_byte(s.residual_dtype)) return;
      size += (255 + std::fabs(double(s.r_before))) * std::fabs(double(s.r_scale)) + std::fabs(double(s.r_bias));
    }
    if (!(size * std::max(1.0, double(s.inverse)) < kMost)) return;
    // Division and rounding keep the order: a clamp before them is one after them. Beyond the range it says nothing.
    const auto level = [&s](float v) {
      return int32_t(std::nearbyint(std::clamp(v / s.step, -2048.0f, 2048.0f))) + s.zero;
    };
    const int32_t low = level(s.low), high = level(s.high);
    const int32_t least = s.least, most = s.most;
    s.least = std::clamp(low, least, most);
    s.most = std::clamp(high, s.least, most);
    s.tame = true;
    s.small = size * std::max(1.0, double(s.inverse)) < 0x1p30;
    size = 2048;
  }
}

void DotEpilogue::finish(const Bound& bound, DotFinish& block, int64_t column, const TileInput* operands) const {
  run(bound, block, column, operands);
  if (table_) map_(*table_, static_cast<uint8_t*>(block.y), block.y_row, block.rows, block.cols);
}

void DotEpilogue::run(const Bound& bound, DotFinish& block, int64_t column, const TileInput* operands) const {
  block.integers = integers_;
  block.y_dtype = y_;
  block.column = column;
  if (program_) {
    float* sums = static_cast<float*>(const_cast<void*>(block.sums));
    if (integers_) dot_sums_to_f32(block);
    if (bound.count > 0) {
      DotFinish in_place = block;
      in_place.integers = false;
      in_place.y = sums;
      in_place.y_row = kDotColumns;
      in_place.y_dtype = DType::kF32;
      dot_finish_segments(in_place, bound.segments, bound.count);
    }
    apply_epilogue(*program_, sums, kDotColumns, block.rows, block.cols, operands);
    dot_store_rows(block);
    return;
  }
  for (int k = 0; k < bound.count; ++k)
    if (const int r = bound.residual[k]; r >= 0) block.residuals[k] = {operands[r].data, operands[r].row_stride};
  dot_finish_segments(block, bound.segments, bound.count);
}

bool DotEpilogue::reads(int operand) const {
  const auto is_residual = [operand](const DotChain::Link& link) { return link.residual - 1 == operand; };
  return program_ || std::any_of(chain_.links.begin(), chain_.links.end(), is_residual);
}

}  // namespace ridgeline::cpu
