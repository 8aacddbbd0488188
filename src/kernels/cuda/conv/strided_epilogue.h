// Epilogues for kernels that walk output 0 by all its axes: operands may be broadcast and strided along any of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/problem.h"

namespace ridgeline::cuda {

/// Why such an epilogue cannot be printed; empty: it can.
std::string strided_epilogue_reject(const Problem& problem);

/// Defines OutputType and `finish(V v, const A& a, const i64 (&at)[5])`: v with the epilogue applied, in OutputType's
/// register type. A has `epilogue_address[OPERANDS]` and `epilogue_stride[OPERANDS][5]`.
std::string strided_epilogue_source(const Problem& problem);

/// The two arrays as words; room for one operand where there is none.
std::vector<uint64_t> strided_epilogue_words(const Problem& problem, void* const* inputs);

}  // namespace ridgeline::cuda
