// The most frequent ends of sums by instructions of AVX-512 that the portable vectors do not reach.
#pragma once

#include "kernels/cpu/matmul/dot/dot_segments.h"

namespace ridgeline::cpu {

/// sums + bias (+ a residual of bf16, after rounding where the segment does), at least `low`: how many of the block's
/// first rows were stored, so that the caller goes on from there. None without the instructions.
int dot_rows_to_bf16(const DotFinish& finish, const DotSegment& segment);

/// i32 sums through one or two tame segments (scaled in one rounding; the second one's line a zero point) and a
/// residual of u8 to u8: false where it is not that.
bool dot_rows_to_bytes(const DotFinish& finish, const DotSegment* segments, bool two);

}  // namespace ridgeline::cpu
