// What the attributes of LSTM, GRU and RNN say: read once, for inference, the reference and the kernels.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attributes.h"
#include "ir/op_schema.h"

namespace ridgeline {

struct Problem;

std::span<const OpSchema* const> recurrent_ops();

enum class GateFunction : uint8_t {
  kSigmoid,
  kTanh,
  kRelu,
  kAffine,
  kLeakyRelu,
  kThresholdedRelu,
  kScaledTanh,
  kHardSigmoid,
  kElu,
  kSoftsign,
  kSoftplus,
};

struct GateActivation {
  GateFunction function = GateFunction::kSigmoid;
  float alpha = 0, beta = 0;
  bool operator==(const GateActivation&) const = default;
};

enum class CellKind : uint8_t { kLstm, kGru, kRnn };

struct RecurrentForm {
  std::string refusal;  // what is wrong with the attributes; empty: nothing
  CellKind kind = CellKind::kRnn;
  int gates = 1, functions = 1;            // a direction
  int directions = 1;                      // num_directions
  bool backward = false;                   // the only direction is the reverse one
  bool batch_first = false;                // layout 1
  bool input_forget = false;               // LSTM: f = 1 - i
  bool linear_before_reset = false;        // GRU
  double clip = 0;                         // 0: none
  std::vector<GateActivation> activation;  // `functions` a direction

  const GateActivation* activations_of(int direction) const { return activation.data() + direction * functions; }
  bool is_backward(int direction) const { return directions == 2 ? direction == 1 : backward; }
};
RecurrentForm recurrent_form(const OpSchema& op, const Attributes& attributes);

/// The extents of a problem of which `recurrent_form` and inference had nothing to object to.
struct RecurrentExtents {
  int64_t steps = 0, batch = 0, input = 0, hidden = 0;
};
RecurrentExtents recurrent_extents(const Problem& problem, const RecurrentForm& form);

/// Inputs and outputs by number; those that GRU and RNN have are the first of LSTM's.
enum RecurrentInput {
  kRecurrentX,
  kRecurrentW,
  kRecurrentR,
  kRecurrentB,
  kRecurrentLengths,
  kRecurrentH,
  kRecurrentC,
  kRecurrentP
};

}  // namespace ridgeline
