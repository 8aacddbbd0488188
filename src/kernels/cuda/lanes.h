// Normalizations and reductions as the GPU sees them: lanes, each a set of members of the input, wherever they lie; and
// further operands that follow lanes, members or both by strides. lanes.cu is the same on the device.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/loops.h"
#include "ir/problem.h"
#include "kernels/cuda/compiler.h"
#include "kernels/kernel.h"

namespace ridgeline::cuda {

/// One tensor over the axes; 0 where it repeats.
struct LaneOperand {
  std::string role;  // "Scale": kScale and ScaleType in the kernel
  DType dtype = DType::kNone;
  int input = -1, output = -1;
  std::vector<int64_t> strides;
};

/// Operand 0 is what is read ("X"), 1 the output 0 ("Y").
struct LaneView {
  Extents extents;
  std::vector<char> member;  // of the axes: a member's, else a lane's
  std::vector<LaneOperand> operands;
  Loops lanes, members;  // merged

  int64_t lane_count() const { return lanes.elements(); }
  int64_t member_count() const { return members.elements(); }
  int find(std::string_view role) const;  // -1: none
  /// Stride of an operand over the members, where they are one axis; an only member has any.
  int64_t column_stride(int operand) const;
};

/// Strides over `axes` axes of an operand whose trailing axes are those that `to` names (-1: an extent of 1).
std::vector<int64_t> spread_strides(const Layout& operand, const std::vector<int>& to, size_t axes);
/// Adds the epilogue's operands ("E0", ...); `of_output`: the axis of each of output 0's, or -1.
void add_epilogue(LaneView& view, const Problem& p, const std::vector<int>& of_output);
/// Once all operands are there.
void merge_lanes(LaneView& view);

/// Why these kernels cannot: types, epilogue, axes. Empty: they can.
std::string lanes_reject(const LaneView& view, const Problem& p);
/// Members follow each other in x, y and `also`, so that a lane is a row.
bool is_rows(const LaneView& view, std::initializer_list<std::string_view> also = {});

/// The text before a kernel's file: sizes, types, operand numbers of `roles` (-1 where there is none), lanes.cu, and
/// `epilogue_at(V v, a, at, column)`, which gives OutputType's register type. `rows`: columns are one axis, whose
/// classes of strides (0, 1, 2 for others) are in kColumn; else `at` are the element's own places, column is not used.
std::string lanes_text(const LaneView& view, const Problem& p, std::span<const std::string_view> roles, bool rows);
/// The kernel's parameter. `per`: elements a pack.
std::vector<uint64_t> lanes_words(const LaneView& view, const Buffers& buffers, int per,
                                  const std::vector<double>& numbers);

/// Whether the packs of an operand are whole words, where that is not as `lanes_words` takes it (packs along rows).
void lanes_set_aligned(std::vector<uint64_t>& words, int operand, bool aligned);

/// Where a kernel puts a double in a list of words.
uint64_t word_of(double value);

}  // namespace ridgeline::cuda
