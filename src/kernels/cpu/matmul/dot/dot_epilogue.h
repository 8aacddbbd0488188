// The epilogue of a narrow product: sums of i32 or f32 through the problem's program into y, block by block while they
// are in L1. Programs that are chains of scalings, residuals, clamps and quantizations run in registers
// (dot_segments.h), others on the block interpreter; what follows a first byte and depends on nothing else is a table.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/elementwise/program_block.h"
#include "kernels/cpu/matmul/dot/byte_table.h"
#include "kernels/cpu/matmul/dot/dot_segments.h"
#include "kernels/cpu/simd.h"
#include "kernels/kernel.h"

namespace ridgeline::cpu {

/// How an operand of the program lies over rows and columns.
enum class DotRider : uint8_t {
  kScalar,   // one number
  kColumns,  // one a column, contiguous
  kRows,     // the shape of y, columns contiguous
  kOther,
};

/// A number that is one for all or one a column: a constant, or an operand of the program (its input's number).
struct DotValue {
  int input = -1;
  double number = 0;
  bool given = false;
};

/// A program read as segments; lines and addresses come with the call.
struct DotChain {
  struct Link {
    DotSegment fixed;
    DotValue before, scale, bias, step, zero;
    int residual = -1;  // input of the program
    DotValue r_before, r_scale, r_bias;
  };
  DotValue integer_bias;  // i32, joins the sums
  std::vector<Link> links;
};
/// Nothing if the program is no such chain. `riders[i]` is of the program's input i (that of input 0 has no meaning).
std::optional<DotChain> read_dot_chain(const Program& program, const std::vector<DotRider>& riders, bool integers);

class DotEpilogue {
 public:
  static constexpr int kMostOperands = 16;

  /// Why the problem's program cannot follow these sums; empty if it can. Without a program y is f32 or bf16 after f32
  /// sums, i32 after i32 sums.
  static std::string reject(const Problem& problem, bool integers, std::vector<DotRider> riders);
  /// `riders` of the program's further operands, in both; `bias`: an input of the operator with one number a column
  /// that joins f32 sums first; `columns` of y in all.
  DotEpilogue(const Problem& problem, bool integers, std::vector<DotRider> riders, int bias, int64_t columns);

  /// Workspace of `bind`, in bytes.
  int64_t bytes() const;
  bool integers() const { return integers_; }
  int operands() const { return operand_count_; }
  bool on_registers() const { return !program_; }
  /// i32 sums that are y themselves.
  bool sums_alone() const { return !program_ && chain_.links.empty(); }

  /// With the addresses of a call.
  struct Bound {
    DotSegment segments[kMostDotSegments];
    int residual[kMostDotSegments] = {};  // operand of the program; -1: none
    int count = 0;
    const int32_t* integer_bias = nullptr;  // one a column: for the caller, who adds it to the terms
  };
  void bind(const Buffers& buffers, void* workspace, Bound& bound) const;

  /// Does `finish` look at this operand of the program?
  bool reads(int operand) const;
  /// A block of sums at column `column`. `operands` are those of the program that it reads, at the block's first
  /// element.
  /// Completes `block`.
  void finish(const Bound& bound, DotFinish& block, int64_t column, const TileInput* operands) const;

 private:
  struct Source {
    int input;  // of the problem
    DType dtype;
    DotRider rider;
  };
  void run(const Bound& bound, DotFinish& block, int64_t column, const TileInput* operands) const;
  DotLine line_of(const DotValue& value, const Buffers& buffers, float*& to) const;
  void tame(Bound& bound) const;
  float number_of(const DotValue& value, const Buffers& buffers) const;
  int64_t padded() const { return (columns_ + 63) / 32 * 32; }

  bool integers_ = false;
  bool bf16_instructions_ = has_feature("avx512_bf16");
  int64_t columns_ = 0;
  int operand_count_ = 0;
  std::vector<Source> sources_;  // by input of the program; [0] is the sums
  DotChain chain_;
  int bias_ = -1;
  DType bias_dtype_ = DType::kNone;
  DType y_ = DType::kF32;
  std::shared_ptr<const PreparedProgram> program_;  // if it is no chain
  std::shared_ptr<const ByteTable> table_;          // what the bytes become in the end
  MapBytes map_ = nullptr;
};

}  // namespace ridgeline::cpu
