// How a recurrent problem is cut. The weights of all gates are packed as panels of the product engine (gemm.h) whose
// columns are in vectors: the units of one vector of the first gate, the same of the next gates, then the next units.
// So a few neighbouring panels hold all that some units need, and their cell follows while the sums are in the first
// cache.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/cpu/matmul/gemm.h"
#include "kernels/kernel.h"
#include "ops/recurrent.h"

namespace ridgeline::cpu {

/// Gates whose products of a step are taken together. One, but two in a GRU that resets before its product.
struct RecurrentPass {
  int first_gate = 0, gates = 0;
  int64_t group = 1;     // vectors of units whose gates fill whole panels
  int64_t x_col = 0;     // first column among the projections
  int64_t r_floats = 0;  // offset of its panels in a direction's packed R
};

struct RecurrentShape {
  RecurrentForm form;
  RecurrentExtents e;
  DType dtype = DType::kF32;
  int64_t lanes = 0, width = 0;   // of a vector, of a panel
  int64_t blocks = 0, units = 0;  // vectors of hidden units; units with those that fill the last one
  int passes = 1;
  std::array<RecurrentPass, 2> pass;
  int64_t x_cols = 0;                   // of a row of projections
  int64_t w_floats = 0, r_floats = 0;   // packed, of a direction
  int64_t state_row = 0;                // floats between rows of a state
  bool pack_w = false, pack_r = false;  // each run has to: no constants
  bool usual = false;                   // sigmoid, tanh, no clip

  int threads = 1;
  bool share_steps = false;      // threads divide the units of each step, else directions and slices of the batch
  int64_t slices = 1, rows = 0;  // of the batch, and the rows of the largest
  int64_t chunk = 0;             // steps whose projections are made together

  // Workspace, in floats.
  int64_t shared_floats = 0, sweep_floats = 0, sums_floats = 0, gemm_floats = 0;
  int64_t sweeps = 1;  // that are under way at a time
  int64_t workspace_floats() const { return shared_floats + sweeps * sweep_floats; }

  bool narrow() const { return dtype != DType::kF32; }
  int64_t bias_floats() const { return x_cols + units; }  // of a direction
  int64_t group_cols(const RecurrentPass& p) const;
};

RecurrentShape recurrent_shape(const Problem& problem);

/// The projection of `steps` steps of `rows` rows; no pointers. `x_in_place`: x as it lies, else [step][row][input].
Gemm projection(const RecurrentShape& shape, int64_t steps, int64_t rows);

/// W (k = input) or R (k = hidden) of one direction, [gates * hidden, k] of the problem's type, into panels.
void pack_recurrent(const RecurrentShape& shape, const void* source, int64_t k, float* packed);
/// B of one direction: the sum of both biases by column of the projections; then, where GRU resets after its product,
/// that of the third gate's product by unit.
void pack_bias(const RecurrentShape& shape, const void* source, float* packed);

}  // namespace ridgeline::cpu
