// What follows the products of a step: from the sums of some hidden units to their new state, for every row of the
// batch. Plain pointers only: this is included by per-target code.
#pragma once

#include <cstdint>

#include "ops/recurrent.h"

namespace ridgeline::cpu {

/// The sums lie in vectors of as many units as the ISA has lanes: those of one gate, then of the next, then the next
/// units. Buffers of states have room for whole vectors; y has not.
struct CellStep {
  int64_t first = 0, blocks = 0, hidden = 0;  // vectors `first` to `first + blocks` of `hidden` units
  int64_t rows = 0;
  const float* sums = nullptr;  // h R^T
  int64_t sums_row = 0;
  const float* x = nullptr;  // x W^T and the biases, in the same order
  int64_t x_row = 0;
  const float* h = nullptr;
  float* next = nullptr;
  float* cell = nullptr;            // LSTM: c; GRU that resets before its product: the update gate
  float* reset = nullptr;           // the same GRU: r h
  int64_t state_row = 0;            // between rows of these four, which start at unit 0
  const float* peephole = nullptr;  // LSTM: for i, o and f, `peephole_step` apart
  int64_t peephole_step = 0;
  const float* bias = nullptr;  // GRU that resets after it: of the third gate's product
  float* y = nullptr;           // null: the caller stores them
  int64_t y_row = 0;
  const int32_t* lengths = nullptr;  // of the rows; null: all are long enough
  int64_t t = 0;                     // a row that is no longer than this keeps its state, and its y is 0
  const GateActivation* activation = nullptr;
  float clip = 0;
  bool usual = false;  // sigmoid, tanh, tanh and no clip
  bool input_forget = false;

  bool active(int64_t row) const { return !lengths || t < lengths[row]; }
};

void lstm_step(const CellStep& step);
void rnn_step(const CellStep& step);
/// Reset after the product (linear_before_reset), all three gates at once.
void gru_step(const CellStep& step);
/// Reset before it: the first two gates, and the third.
void gru_gates(const CellStep& step);
void gru_candidate(const CellStep& step);

}  // namespace ridgeline::cpu
