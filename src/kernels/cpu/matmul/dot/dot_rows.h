// Rows of A as the dot-product tiles want them. Per-target code: plain pointers alone.
#pragma once

#include <cstdint>

#include "kernels/cpu/matmul/dot/dot_micro.h"
#include "ridgeline/dtype.h"

namespace ridgeline::cpu {

/// k elements (u8; i8, to which 128 is added; bf16; f32, which is rounded to bf16), then zeros up to `padded` bytes.
void dot_copy_row(DotType type, const void* source, DType dtype, int64_t k, uint8_t* to, int64_t padded);
/// `blocks` times 64 bytes to places 1 KiB apart: a row of AMX's tiles.
void dot_scatter_row(const uint8_t* row, int64_t blocks, uint8_t* to);
/// `count` times `bytes` (at most 64), `stride` apart, to lines of 64 with zeros behind; `flips` adds 128 to each.
void dot_copy_lines(const uint8_t* from, int64_t stride, int64_t count, int bytes, bool flips, uint8_t* to);

}  // namespace ridgeline::cpu
