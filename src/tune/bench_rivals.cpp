#include "tune/bench_rivals.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tune/prepared.h"

namespace ridgeline {
namespace {

// What another order of sums, Winograd, or an approximation of exp may cost, of the largest value. A library that
// computes something else (another GELU, a scale left out) is off by 1e-3 and more.
double allowed(DType dtype) {
  if (!is_float(dtype)) return 0;
  if (dtype == DType::kBF16) return 2e-2;
  return dtype == DType::kF16 ? 4e-3 : 2e-4;
}

}  // namespace

void fill_operand(const Operand& operand, void* data, std::mt19937_64& random) {
  const int64_t count = operand.layout.span();
  // 4,096 values, drawn once and repeated with a drift from a random place on: drawing each would take longer than the
  // benchmark, and so did a draw for each of 10,000 small buffers.
  static const std::vector<float> noise = [] {
    std::mt19937_64 source(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(4096);
    for (float& x : values) x = normal(source);
    return values;
  }();
  const int64_t from = int64_t(random() % 4096);
  const auto normal = [&](int64_t i) { return noise[size_t((from + i + i / 4096) % 4096)]; };
  if (operand.dtype == DType::kF32) {
    for (int64_t i = 0; i < count; ++i) static_cast<float*>(data)[i] = normal(i);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (is_float(operand.dtype))
      store_f64(operand.dtype, data, i, normal(i));
    else
      store_i64(operand.dtype, data, i, int64_t(random() % 2));
  }
}

PreparedRival::PreparedRival(const Problem& problem, const Candidate& ours, Rival rival, int sets, uint64_t seed)
    : rival_(std::move(rival)) {
  if (!rival_.step) return;
  RivalStep& step = *rival_.step;
  std::mt19937_64 random(seed);
  std::vector<Tensor> values;
  for (const Operand& operand : problem.inputs) {
    Tensor value = operand.present() ? operand.constant : Tensor();
    if (operand.present() && !value) {
      value = Tensor(operand.dtype, operand.shape());
      fill_operand(operand, value.data(), random);
    }
    values.push_back(value);
  }
  std::vector<void*> first;
  std::vector<std::vector<std::shared_ptr<void>>> memory;
  for (size_t i = 0; i < values.size(); ++i)
    memory.push_back(allocate_sets(values[i] ? step.input_bytes(int(i)) : 0, sets));
  memory.push_back(allocate_sets(step.output_bytes(), sets));
  for (const auto& all : memory) memory_.insert(memory_.end(), all.begin(), all.end());
  for (; sets_ < sets; ++sets_) {
    std::vector<void*> inputs;
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t bytes = values[i] ? step.input_bytes(int(i)) : 0;
      inputs.push_back(nullptr);
      if (bytes == 0) continue;
      inputs.back() = memory[i][size_t(sets_)].get();
      if (sets_ == 0)
        step.load(int(i), values[i], inputs.back());
      else
        std::memcpy(inputs.back(), first[i], size_t(bytes));
    }
    void* const output = memory.back()[size_t(sets_)].get();
    std::memset(output, 0, size_t(step.output_bytes()));
    step.bind(inputs, output);
    if (sets_ > 0) continue;
    first = inputs;
    step.run(0);
    rival_.reason = difference(problem, ours, values, output);
    if (!rival_.reason.empty()) return;
  }
}

std::string PreparedRival::difference(const Problem& problem, const Candidate& ours, const std::vector<Tensor>& inputs,
                                      const void* output) const {
  const KernelCall call = bind_kernel(problem, ours);
  std::vector<Tensor> kept, results;
  std::vector<void*> from, to;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool constant = inputs[i] && problem.inputs[i].is_constant;
    kept.push_back(constant ? packed_constant(call, int(i), inputs[i]) : inputs[i]);
    from.push_back(kept.back().data());
  }
  for (const Operand& o : problem.outputs) {
    results.push_back(Tensor(o.dtype, o.shape()));
    to.push_back(results.back().data());
  }
  const std::shared_ptr<void> workspace = allocate(call.workspace_bytes);
  call.kernel->run(call, {from.data(), to.data(), workspace.get()}, ThreadPool(problem.threads));
  Tensor theirs(results[0].dtype(), results[0].shape());
  rival_.step->unload(output, theirs);
  double largest = 0, furthest = 0;
  for (int64_t i = 0; i < theirs.elements(); ++i) {
    const double right = results[0].f64(i), off = std::fabs(theirs.f64(i) - right);
    largest = std::max(largest, std::fabs(right));
    furthest = off <= furthest ? furthest : off;  // NaN stays
  }
  if (furthest <= allowed(theirs.dtype()) * largest) return "";
  return fmt::format("its result differs by {:.3g} of the largest value", furthest / largest);
}

}  // namespace ridgeline
