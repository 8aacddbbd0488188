// Quantized values of a graph while its reference runs: how large a level is, and whether other bytes than the
// reference's are right ones too.
#pragma once

#include <map>
#include <vector>

#include "verify/graph_tolerance.h"

namespace ridgeline {

class QuantizedRun {
 public:
  explicit QuantizedRun(const Graph& graph) : graph_(&graph) {}

  /// Every value, as the reference computes it.
  void observe(ValueId value, const Tensor& right);
  /// `y` was written where the reference has `right`. True if the reference may go on from it: it is a QuantizeLinear's
  /// result in 8 bits, which `judge` can judge, or was `rounded` to bf16, which the tolerances know.
  bool restart(ValueId value, const Tensor& y, const Tensor& right, bool rounded = false);
  /// Did any of them differ from the reference?
  bool parted() const { return parted_; }
  const QuantizedValues& values() const { return values_; }

  /// Sets the error and what is allowed, both relative to the largest reference, at the element where y is furthest
  /// from what is right: with x the real value and e its tolerance, anything from Q(x - e) to Q(x + e). Leaves them
  /// where nothing differed.
  void judge(ValueId value, const std::vector<double>& tolerances, double& error, double& tolerance) const;

 private:
  struct Parted {
    Tensor x, y, right;
  };
  const Node* quantizer(ValueId value) const;

  const Graph* graph_;
  QuantizedValues values_;
  std::map<ValueId, Tensor> waiting_;  // real values whose quantization comes
  ValueId done_ = kNoValue;            // of them: not asked for after the next value
  std::map<ValueId, Parted> differing_;
  bool parted_ = false;
};

}  // namespace ridgeline
