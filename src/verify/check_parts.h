// The parts of the sweep: making problems, filling inputs, judging results.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/problem.h"
#include "ir/reference.h"
#include "verify/check.h"

namespace ridgeline {

/// splitmix64: small, seeded, the same everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  int64_t below(int64_t n) { return n <= 0 ? 0 : int64_t(next() % uint64_t(n)); }
  bool chance(double p) { return double(next() >> 11) * 0x1p-53 < p; }
  template <typename List>
  const auto& pick(const List& list) {
    return list[size_t(below(int64_t(std::size(list))))];
  }

 private:
  uint64_t state_;
};

/// A problem near one of the operator's samples, as text that parse_problem takes: other extents, types, strides,
/// attributes, constants, epilogues. Empty if none was found that infer accepts and that is small enough. `wide`:
/// larger, of whole vectors, seldom strided or of another type: for kernels that few others reach.
std::string random_problem(const OpSchema& op, Random& random, bool wide = false);

/// Content of all inputs for the problem, a function of the problem and the seed alone. Indices are legal, scales and
/// variances positive, divisors not zero; absent operands give empty tensors.
std::vector<Tensor> fill_inputs(const Problem& problem, uint64_t seed);

/// What the results may differ by.
class Judge {
 public:
  /// `exact`: results of the reference before rounding (run_reference_on_views); `accumulators`: output 0 before the
  /// epilogue.
  Judge(const Problem& problem, const std::vector<Tensor>& inputs, std::vector<RefArray> exact,
        const RefArray* accumulators);
  /// Empty if element `k` of output `o` may be this. `amplification`: the kernel's.
  std::string reject(int o, int64_t k, double got, double amplification = 1) const;
  std::string reject(int o, int64_t k, int64_t got) const;
  const RefArray& exact(int o) const { return exact_[size_t(o)]; }

 private:
  double tolerance(int o, int64_t k, double amplification) const;
  double own_tolerance(int o, int64_t k, double value, double amplification) const;  // of the operator alone
  double program_tolerance(int o, int64_t k, double amplification) const;

  const Problem& problem_;
  const std::vector<Tensor>& inputs_;
  std::vector<RefArray> exact_;
  RefArray accumulators_;
  std::vector<double> scale_;  // largest finite |value| of each output; with an epilogue, of the accumulators
  double terms_ = 1;           // summed for one result
  double exponent_error_ = 0;  // what exp makes of the errors of attention's scores
  std::vector<double> deviation_errors_;  // of a normalization's rows
};

/// First-order error of a program's outputs at one point: `error` holds the inputs' errors on entry; results per
/// output. Infinite where a comparison or rounding may go either way.
std::vector<double> program_error(const Program& program, const std::vector<ScalarValue>& inputs,
                                  const std::vector<double>& input_error, double special_ulps);

}  // namespace ridgeline
