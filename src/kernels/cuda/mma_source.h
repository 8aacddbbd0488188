// The matrix instructions as functions: their operand lists are too long to be written by hand.
#pragma once

#include <string>

#include "ridgeline/dtype.h"

namespace ridgeline::cuda {

/// wgmma of 64 x n x (32 bytes of k), both operands in shared memory (K-major), sums in registers:
/// "using WgmmaSum = float;" and `wgmma(WgmmaSum (&sum)[n / 2], u64 a, u64 b, int add)`; add 0: sums start anew.
/// dtype: bf16, f16, f32 (as tf32), f8e4m3, i8 (sums are int). n a multiple of 8 (of 16 above 32 for i8), at most 256.
/// PTX ISA 8.0, section 9.7.15 (asynchronous warpgroup level matrix instructions).
/// `a_along_k`, `b_along_k`: how the operand's rows lie in shared memory; along rows or columns only for bf16 and f16.
std::string wgmma_function(DType dtype, int n, const std::string& name = "wgmma", bool a_along_k = true,
                           bool b_along_k = true);
/// The same of bf16 or f16 with the first operand in registers (as sums of a product lie, in pairs) and the second read
/// across its rows (n is the contiguous axis): `NAME(float (&sum)[n / 2], const u32 (&a)[4], u64 b, int add)`.
std::string wgmma_from_registers(DType dtype, int n, const std::string& name);

}  // namespace ridgeline::cuda
