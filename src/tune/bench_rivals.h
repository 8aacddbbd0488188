// bench --rivals: other libraries' steps, verified once, on as many rotating buffers as ours.
#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel.h"
#include "rivals/rival.h"

namespace ridgeline {

/// Normal numbers (integers: 0 and 1), over the whole span.
void fill_operand(const Operand& operand, void* data, std::mt19937_64& random);

class PreparedRival {
 public:
  /// Computes what our kernel computes, or `reason` says by how much it differs. Constants have their content.
  PreparedRival(const Problem& problem, const Candidate& ours, Rival rival, int sets, uint64_t seed);
  const std::string& name() const { return rival_.name; }
  const std::string& reason() const { return rival_.reason; }
  void run() { rival_.step->run(next_++ % size_t(sets_)); }

 private:
  std::string difference(const Problem& problem, const Candidate& ours, const std::vector<Tensor>& inputs,
                         const void* output) const;
  std::vector<std::shared_ptr<void>> memory_;  // before the step, which ends first
  Rival rival_;
  int sets_ = 0;
  size_t next_ = 0;
};

}  // namespace ridgeline
