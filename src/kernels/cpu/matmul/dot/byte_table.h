// The end of a quantized epilogue that depends on one byte alone, as a table of 256: an activation between two
// quantizations (HardSwish spelled as dequantize, HardSigmoid, quantize, dequantize, multiply, quantize) is a dozen
// steps of the interpreter, 0.6 ns a number, or one look-up.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "ir/program.h"

namespace ridgeline::cpu {

using ByteTable = std::array<uint8_t, 256>;

/// The program up to the first byte that decides its result, also a byte, and what becomes of it. The head keeps the
/// program's inputs.
struct ByteTail {
  Program head;
  ByteTable table;
};
std::optional<ByteTail> byte_tail(const Program& program);

/// Each byte of a block becomes table[byte], by the instructions that are allowed now.
using MapBytes = void (*)(const ByteTable& table, uint8_t* y, int64_t y_row, int rows, int cols);
MapBytes map_bytes();

}  // namespace ridgeline::cpu
