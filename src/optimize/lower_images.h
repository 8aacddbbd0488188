#pragma once

#include "ir/graph.h"
#include "optimize/decision.h"

namespace ridgeline {

/// Every reader of operand `of` reads a new first instruction instead; its number.
int put_first(Program& p, Instruction in, int of);
/// An f32 input is stored in this type; the rest of the Program computes in f32 as before.
void read_narrow(Program& p, int input, DType dtype);
/// The same of an f32 output. `saturate`: what is past the type's largest number is that number, not infinite.
void write_narrow(Program& p, int output, DType dtype, bool saturate);

/// The part of lower_to_bf16 that works on convolutions and the images between them.
void lower_images_to_bf16(Graph& graph, Decisions& decisions);

}  // namespace ridgeline
