// Epilogues of convolutions that see their output as a matrix: rows are pixels (images and spatial axes), columns are
// channels. One operand may come from shared memory, where the kernel has put it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/problem.h"

namespace ridgeline::cuda {

/// Why it cannot be printed: results and sums that are no f32, f16 or bf16, an operand without one stride over pixels.
std::string matrix_epilogue_reject(const Problem& problem);

/// The epilogue operand that lies as the output does, in 16 bits, or -1: the kernel may fetch it tile by tile.
int staged_operand(const Problem& problem);

/// Defines OutputType, `struct Epilogue` (words) and
///   `epilogue_columns(float (&v)[N], const Epilogue& e, i64 row, i64 column, const S& staged)`:
/// v becomes the results of N neighbouring columns, the first a multiple of N. `staged`: the operand that
/// staged_operand names, as words of two values each, if `staged` is asked for here; else it is not read.
std::string matrix_epilogue_source(const Problem& problem, bool staged);

std::vector<uint64_t> matrix_epilogue_words(const Problem& problem, void* const* inputs);

}  // namespace ridgeline::cuda
