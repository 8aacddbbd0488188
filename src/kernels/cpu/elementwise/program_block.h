// Programs over blocks of f32: the elementwise kernel's inner loop, and what contractions, norms and reductions call
// for their epilogue. An instruction at a time over 256 elements, so that its dispatch costs nothing and its operands
// stay in L1 (blocks of 1,024 were slower).
//
// A kernel with an epilogue does:
//   supports:  if (p.has_epilogue()) if (std::string why = PreparedProgram::reject(*p.program); !why.empty()) return
//   no("{}", why); prepare:   keep PreparedProgram(*p.program) in the state. run:       apply_epilogue(program, c, ldc,
//   rows, cols, operands) on each finished tile of the accumulator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/program.h"

namespace ridgeline::cpu {

/// One operand of a block: `data` is the element that goes with the block's first, in the dtype the program gives its
/// input or output (f32, f16, bf16, bool, u8, i8, other integers that the program only casts); `stride` in elements
/// from one to the next: 0 is one value for all, 1 is contiguous, anything else is gathered.
struct BlockInput {
  const void* data = nullptr;
  int64_t stride = 1;
};
struct BlockOutput {
  void* data = nullptr;
  int64_t stride = 1;
  bool stream = false;  // non-temporal stores (contiguous outputs only): for what will not be read from the cache again
};
/// The same for a tile of rows x cols.
struct TileInput {
  const void* data = nullptr;
  int64_t row_stride = 0, col_stride = 1;
};
struct TileOutput {
  void* data = nullptr;
  int64_t row_stride = 0, col_stride = 1;
  bool stream = false;
};

/// A Program that works in f32: registers are assigned, operands resolved. Immutable; shared by threads.
class PreparedProgram {
 public:
  static constexpr int kBlock = 256;

  /// Why this program cannot run in f32 (64-bit floats, integer arithmetic); empty if it can. bool results and
  /// comparisons are fine, f16 and bf16 steps are rounded as the program says, results in u8 and i8 saturated.
  static std::string reject(const Program& program);
  explicit PreparedProgram(const Program& program);  // asserts that reject() is empty

  int inputs() const { return int(inputs_.size()); }
  int outputs() const { return int(outputs_.size()); }

  // For the vector code, which sees plain pointers alone. Slots: inputs, constants, then registers (shared by results
  // whose lives do not overlap).
  static constexpr int kMostSlots = 96;
  struct Step {
    int16_t op;  // a ScalarOp, or one of BlockOp
    int16_t dst, a, b, c;
  };
  struct Value {
    int16_t slot;
    DType dtype;
  };
  struct View {
    const Step* steps;
    const Value *inputs, *outputs;
    const float* constants;
    int step_count, input_count, output_count, constant_count, slot_count;
    bool last_is_output;  // the last step computes the only output: it may write to memory itself
  };
  View view() const;

 private:
  std::vector<Value> inputs_, outputs_;
  std::vector<Step> steps_;
  std::vector<float> constants_;
  int slots_ = 0;
  bool last_is_output_ = false;
};

/// Steps that no ScalarOp names: roundings to a narrow type, and functions of one argument that are recognised in the
/// program, whatever its spelling, and are both faster and more exact than their parts.
enum BlockOp : int16_t {
  kCopy = kScalarOpCount,
  kRoundF16,
  kRoundBF16,
  kToBool,
  kToU8,  // towards 0, saturated; NaN becomes 0. The number stays in f32
  kToI8,
  kExpm1,
  kGelu,
  kSiLU,
  kHardSwish,
};

/// A recognised function (kGelu, kSiLU, kHardSwish) that computes value `to` of the program from an earlier value, and
/// that one; op -1: none.
struct ProgramFunction {
  int from = -1;
  int16_t op = -1;
};
ProgramFunction function_at(const Program& program, int to);

/// outputs = program(inputs) over n elements, any n. An output may be the same memory as an input with the same stride.
void run_block(const PreparedProgram& program, int64_t n, const BlockInput* inputs, const BlockOutput* outputs);
/// The same over rows x cols: constants and operands that do not change with the row are prepared once.
void run_tile(const PreparedProgram& program, int64_t rows, int64_t cols, const TileInput* inputs,
              const TileOutput* outputs);

/// row = program(row, operands...) in place: input 0 is the accumulator, f32 whatever the program calls it; `operands`
/// are inputs 1 and up. The program has one output; it is left in f32, rounded to the output's dtype.
void apply_epilogue(const PreparedProgram& program, float* row, int64_t n, const BlockInput* operands);
/// The same over a tile whose rows are ldc floats apart: one call a tile costs one dispatch.
void apply_epilogue(const PreparedProgram& program, float* c, int64_t ldc, int64_t rows, int64_t cols,
                    const TileInput* operands);

}  // namespace ridgeline::cpu
