#include "verify/quantized_values.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "ir/reference.h"

namespace ridgeline {
namespace {

double largest(const Tensor& t) {
  double most = 0;
  for (int64_t k = 0; k < t.elements(); ++k)
    if (std::isfinite(t.f64(k))) most = std::max(most, std::fabs(t.f64(k)));
  return most;
}

}  // namespace

const Node* QuantizedRun::quantizer(ValueId value) const {
  const Node* node = graph_->producer(value);
  const bool constants = node && node->is("QuantizeLinear") && graph_->constant(node->input(1)) &&
                         (node->input(2) == kNoValue || graph_->constant(node->input(2)));
  return constants && !node->program ? node : nullptr;
}

void QuantizedRun::observe(ValueId value, const Tensor& right) {
  const auto quantizes = [&](NodeId u) { return graph_->node(u).is("QuantizeLinear"); };
  if (done_ != kNoValue) waiting_.erase(std::exchange(done_, kNoValue));
  if (std::any_of(graph_->users(value).begin(), graph_->users(value).end(), quantizes)) waiting_[value] = right;
  const Node* node = quantizer(value);
  if (!node) return;
  if (graph_->users(node->input(0)).size() == 1) done_ = node->input(0);
  // Relative to the smaller of the largest byte and the largest number that a byte stands for.
  const Tensor* zero = graph_->constant(node->input(2));
  double bytes = 0, numbers = 0;
  const double shift = zero && zero->elements() == 1 ? zero->f64(0) : 0;
  for (int64_t k = 0; k < right.elements(); ++k) {
    bytes = std::max(bytes, std::fabs(right.f64(k)));
    numbers = std::max(numbers, std::fabs(right.f64(k) - shift));
  }
  values_.level[value] = 1 / std::max(1.0, std::min(bytes, numbers));
}

bool QuantizedRun::restart(ValueId value, const Tensor& y, const Tensor& right, bool rounded) {
  if (rounded) {
    values_.restarted.insert(value);
    return parted_ = true;
  }
  const Node* node = quantizer(value);
  if (!node || !is_byte(right.dtype())) return false;
  values_.restarted.insert(value);
  bool same = true;
  for (int64_t k = 0; k < y.elements() && same; ++k) same = y.i64(k) == right.i64(k);
  if (same) return true;
  parted_ = true;
  differing_[value] = {waiting_.at(node->input(0)), y, right};
  return true;
}

void QuantizedRun::judge(ValueId value, const std::vector<double>& tolerances, double& error, double& tolerance) const {
  const auto at = differing_.find(value);
  if (at == differing_.end()) return;
  const auto& [x, y, right] = at->second;
  const Node& node = *quantizer(value);
  const double allowed = tolerances[size_t(node.input(0))] * largest(x);
  std::vector<Tensor> ends;
  for (const double sign : {-1.0, 1.0}) {
    Tensor moved(x.dtype(), x.shape());
    for (int64_t k = 0; k < x.elements(); ++k) store_f64(x.dtype(), moved.data(), k, x.f64(k) + sign * allowed);
    std::vector<Tensor> in = {moved, *graph_->constant(node.input(1))};
    if (node.input(2) != kNoValue) in.push_back(*graph_->constant(node.input(2)));
    ends.push_back(run_reference(*node.op, node.attributes, in, 1)[0]);
  }
  const double scale = std::max(1.0, largest(right));
  double worst = -1;
  for (int64_t k = 0; k < y.elements(); ++k) {
    const double d = std::fabs(y.f64(k) - right.f64(k));
    if (d == 0) continue;
    const double free = std::fabs((y.f64(k) < right.f64(k) ? ends[0] : ends[1]).f64(k) - right.f64(k));
    const double rank = std::max(0.0, d - free) * 1e6 + d;
    if (rank <= worst) continue;
    worst = rank;
    error = d / scale;
    tolerance = free / scale;
  }
}

}  // namespace ridgeline
