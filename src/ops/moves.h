// Movement operators that are strided copies, as a list of them: the same for every device.
#pragma once

#include <string>
#include <vector>

#include "ir/problem.h"

namespace ridgeline {

/// Elements of one buffer to places of another. Offsets and strides in elements; 0 in `from_strides` repeats.
struct StridedCopy {
  static constexpr int kFromOutput = -1;    // reads what earlier copies wrote to `output`
  static constexpr int kFromConstant = -2;  // reads one element
  Extents shape, from_strides, to_strides;
  int64_t from = 0, to = 0;
  int input = 0, output = 0;
};

/// Which operators `copies_of` knows, each with its own planner.
using CopyPlanner = std::vector<StridedCopy> (*)(const Problem&);

std::vector<StridedCopy> plan_copy(const Problem& p);  // also Identity
std::vector<StridedCopy> plan_transpose(const Problem& p);
std::vector<StridedCopy> plan_reshape(const Problem& p);  // also Flatten, Squeeze, Unsqueeze
std::vector<StridedCopy> plan_expand(const Problem& p);
std::vector<StridedCopy> plan_tile(const Problem& p);
std::vector<StridedCopy> plan_slice(const Problem& p);
std::vector<StridedCopy> plan_concat(const Problem& p);
std::vector<StridedCopy> plan_split(const Problem& p);
std::vector<StridedCopy> plan_depth_to_space(const Problem& p);
std::vector<StridedCopy> plan_space_to_depth(const Problem& p);
/// The input's part that stays, then around it, axis by axis: constants, or copies of what is there already, which have
/// to run one after the other.
std::vector<StridedCopy> plan_pad(const Problem& p);

/// Why the problem is no list of copies; empty: it is.
std::string copies_reject(const Problem& p);
std::string reshape_reject(const Problem& p);
std::string slice_reject(const Problem& p);
std::string pad_reject(const Problem& p);

/// Of a Pad: how many come before each axis, and which input element of an axis stands at `at` (counted from the first
/// that is not padding) in another mode than constant.
std::vector<int64_t> pads_before(const Problem& p);
int64_t pad_source(std::string_view mode, int64_t at, int64_t extent);

}  // namespace ridgeline
