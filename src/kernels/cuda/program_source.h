// A Program as CUDA C++: the same instructions as the reference evaluates, one variable each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ir/problem.h"
#include "ir/program.h"

namespace ridgeline::cuda {

/// The type in which a value of this dtype is computed: f16 and bf16 in float, bool and integers as they are.
std::string register_type(DType dtype);
/// The type in which it lies in memory: f16 and bf16 as the prelude's structs. Empty: no kernel of ours knows it.
std::string storage_type(DType dtype);
/// Does every value of the program have a type that kernels know?
bool printable(const Program& program);

/// "__device__ __forceinline__ void NAME(const float v0, ..., float& r0, ...)": inputs by value in their register
/// types, outputs by reference in theirs.
std::string program_function(const Program& program, const std::string& name);

/// The epilogue of a contraction, norm or reduction as code, and its operands as a parameter.
///
/// The code defines `OutputType`, the storage type of output 0; `struct Epilogue`, a kernel parameter passed by value;
/// and `float|double|... epilogue(V v, const Epilogue& e, i64 row, i64 column)`, where v is the accumulator and the
/// result has OutputType's register type (not yet rounded to it). Without a program it returns v. Where all operands
/// but constants lie so that columns follow each other, EPILOGUE_PAIRS is defined and `epilogue_pair(float& v0, float&
/// v1, e, row, column)` does two neighbouring columns with one load an operand (addresses are then even).
struct EpilogueSource {
  std::string code;
  int operands = 0;
};
/// `rows` x `columns` is how the kernel sees output 0. Each operand must have one stride for rows and one for columns:
/// epilogue_reject says which does not.
std::string epilogue_reject(const Problem& problem, int row_axes);
EpilogueSource epilogue_source(const Problem& problem, int row_axes);

/// The bytes of `struct Epilogue`: for each operand its address and strides (of rows, of columns; in elements). The
/// axes of output 0 before `row_axes` are rows, merged, the others columns; batches are rows.
std::vector<uint64_t> epilogue_words(const Problem& problem, int row_axes, void* const* inputs);

}  // namespace ridgeline::cuda
