#include "kernels/cpu/matmul/low/low_epilogue.h"

#include <optional>

#include "kernels/cpu/matmul/dot/dot_finish.h"
#include "kernels/cpu/matmul/low/low_weights.h"

namespace ridgeline::cpu {
namespace {

constexpr size_t kMostOperands = 16;

// Over [m, n]: all of y's leading axes are rows.
std::optional<LowEpilogue::Operand> operand_of(const Problem& p, int input, int64_t n) {
  const Operand& o = p.input(input);
  const int64_t bytes = bytes_of(o.dtype, 1);
  if (!o.layout.is_row_major() || info(o.dtype).bits < 8) return std::nullopt;
  if (o.elements() == 1) return LowEpilogue::Operand{input, bytes, 0, 0};
  if (o.elements() == n && o.shape().back() == n) return LowEpilogue::Operand{input, bytes, 0, 1};
  if (o.shape() == p.output().shape()) return LowEpilogue::Operand{input, bytes, n, 1};
  return std::nullopt;
}

}  // namespace

LowEpilogue low_epilogue(const Problem& p) {
  LowEpilogue e;
  e.y = p.output().dtype;
  e.n = p.output().shape().back();
  if (!p.has_epilogue()) return e;
  e.refusal = p.program->outputs.size() == 1 ? PreparedProgram::reject(*p.program) : "an epilogue of several results";
  if (!e.refusal.empty()) return e;
  e.program = std::make_shared<const PreparedProgram>(*p.program);
  for (int i = p.op_inputs; i < int(p.inputs.size()); ++i) {
    const auto operand = operand_of(p, i, e.n);
    if (!operand || e.operands.size() == kMostOperands) {
      e.refusal = "an operand of the epilogue is neither whole, nor a row, nor one number";
      return e;
    }
    e.operands.push_back(*operand);
  }
  return e;
}

void low_finish(const LowEpilogue& e, const Buffers& buffers, int64_t row, int64_t col, int rows, int cols, float* sums,
                bool stream) {
  if (e.program) {
    TileInput inputs[kMostOperands];
    for (size_t i = 0; i < e.operands.size(); ++i) {
      const LowEpilogue::Operand& o = e.operands[i];
      inputs[i] = {static_cast<const char*>(buffers.inputs[o.input]) + (row * o.row + col * o.col) * o.element_bytes,
                   o.row, o.col};
    }
    apply_epilogue(*e.program, sums, kLowColumns, rows, cols, inputs);
  }
  char* y = static_cast<char*>(buffers.outputs[0]);
  const int64_t at = row * e.n + col;
  if (e.y != DType::kF16) {
    const int bytes = e.y == DType::kF32 ? 4 : 2;
    return store_rows(sums, rows, cols, y + at * bytes, e.n, bytes, stream);
  }
  for (int r = 0; r < rows; ++r)
    for (int c = 0; c < cols; ++c)
      reinterpret_cast<uint16_t*>(y)[at + r * e.n + c] = f32_to_f16(sums[r * kLowColumns + c]);
}

}  // namespace ridgeline::cpu
