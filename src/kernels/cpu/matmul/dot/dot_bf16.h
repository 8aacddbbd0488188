// Sums of f32 to rows of bf16 by AVX512-BF16.
#pragma once

#include "kernels/cpu/matmul/dot/dot_segments.h"

namespace ridgeline::cpu {

/// sums + bias (+ a residual of bf16, after rounding where the segment does), at least `low`: how many of the block's
/// first rows were stored, so that the caller goes on from there. None without the instructions or with fewer columns
/// than a panel.
int dot_rows_to_bf16(const DotFinish& finish, const DotSegment& segment);

}  // namespace ridgeline::cpu
