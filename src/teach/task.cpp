#include "teach/task.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

#include "ridgeline/error.h"
#include "ridgeline/tensor.h"
#include "session/session.h"
#include "tune/probes.h"

namespace ridgeline::teach {

std::map<std::string, int64_t> whole_numbers(const std::string& what, std::map<std::string, int64_t> defaults,
                                             const std::vector<std::string>& keys) {
  std::string known;
  for (const auto& [key, value] : defaults) known += fmt::format("{}{}={}", known.empty() ? "" : " ", key, value);
  for (const std::string& word : keys) {
    const size_t eq = std::min(word.find('='), word.size());
    const auto at = defaults.find(word.substr(0, eq));
    int64_t value = 0;
    const char *begin = word.data() + std::min(eq + 1, word.size()), *end = word.data() + word.size();
    const auto [stop, error] = std::from_chars(begin, end, value);
    if (at == defaults.end() || error != std::errc() || stop != end || value < 1 || value > 16384)
      fail(ErrorCode::kUsage,
           "explain {}: '{}' is no key with a number from 1 to 16384; there are, as they are if not given: {}", what,
           word, known);
    at->second = value;
  }
  return defaults;
}

Floats room(int64_t count) { return {allocate(count * int64_t(sizeof(float))), count}; }

Floats noise(int64_t count, uint64_t seed) {
  Floats floats = room(count);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> each(-1, 1);
  for (int64_t i = 0; i < count; ++i) floats.data()[i] = each(random);
  return floats;
}

Way way(std::string name, std::string idea, std::string file, int64_t bytes, std::function<void()> run,
        const Floats& result, const Floats& right) {
  Way w{std::move(name), std::move(idea), std::move(file), 1, bytes, std::move(run), {}, {}};
  w.poison = [result] { std::fill_n(result.data(), result.count, std::numeric_limits<float>::quiet_NaN()); };
  w.furthest_value = [result, right] {
    double largest = 0, furthest = 0;
    for (int64_t i = 0; i < result.count; ++i) {
      largest = std::max<double>(largest, std::fabs(right.data()[i]));
      const double off = std::fabs(double(result.data()[i]) - double(right.data()[i]));
      furthest = off <= furthest ? furthest : off;  // NaN stays
    }
    return largest > 0 ? furthest / largest : furthest;
  };
  return w;
}

Way own_kernel(const Problem& problem, const std::vector<Floats>& inputs, int64_t bytes, const Floats& result,
               const Floats& right) {
  Problem bound = problem;
  for (size_t i = 0; i < bound.inputs.size(); ++i) {
    Operand& operand = bound.inputs[i];
    if (!operand.present() || !operand.is_constant) continue;
    operand.constant = Tensor::zeros(DType::kF32, operand.shape());  // a bias that the steps do not add is 0
    if (i < inputs.size()) std::copy_n(inputs[i].data(), inputs[i].count, operand.constant.as<float>());
  }
  const Candidate chosen = choose_kernel(bound, machine_ceilings()).winner();
  struct Prepared {
    KernelCall call;
    std::vector<Tensor> packed;
    std::vector<Floats> inputs, outputs;
    std::vector<void*> in, out;
    std::shared_ptr<void> workspace;
  };
  const auto prepared = std::make_shared<Prepared>();
  prepared->call = bind_kernel(bound, chosen);
  prepared->inputs = inputs;
  prepared->outputs = {result};
  for (size_t i = 0; i < bound.inputs.size(); ++i) {
    const Operand& operand = bound.inputs[i];
    if (operand.constant) {
      prepared->packed.push_back(packed_constant(prepared->call, int(i), operand.constant));
      prepared->in.push_back(prepared->packed.back().data());
    } else {
      prepared->in.push_back(operand.present() ? inputs[i].data() : nullptr);
    }
  }
  prepared->out = {result.data()};
  prepared->workspace = allocate(prepared->call.workspace_bytes);
  Way w = way(
      std::string(chosen.kernel->name), "the library's own kernel for this problem", "", bytes,
      [prepared] {
        const KernelCall& call = prepared->call;
        call.kernel->run(call, {prepared->in.data(), prepared->out.data(), prepared->workspace.get()},
                         ThreadPool(call.problem.threads));
      },
      result, right);
  w.threads = problem.threads;
  return w;
}

}  // namespace ridgeline::teach
