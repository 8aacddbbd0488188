#include "session/cuda_advice.h"

#include <fmt/format.h>

#include "kernels/cuda/instructions.h"

namespace ridgeline {
namespace {

bool tensor_cores_multiply(DType dtype) {
  return dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF8E4M3 || is_byte(dtype);
}

}  // namespace

std::string matrix_code_words(const Step& step, const Ceilings& ceilings) {
  const KernelCall& call = step.call;
  const DType dtype = arithmetic_of(call.problem);
  if (!call.kernel->source || call.problem.op->kind != OpKind::kContraction || !tensor_cores_multiply(dtype)) return "";
  const cuda::MatrixInstructions found = cuda::matrix_instructions(call.kernel->source(call.problem, call.tile));
  if (found.all() > 0) return fmt::format("{} has {}", call.kernel->name, words(found));
  std::string text =
      fmt::format("{} has no matrix instruction: {} runs at {:.0f} times the rate with them", call.kernel->name,
                  name(dtype), ceilings.compute_gop_s(dtype).one / std::max(ceilings.f32.one, 1e-9));
  for (const Candidate& c : step.choice.candidates)
    if (c.kernel->device == DeviceKind::kCuda && c.kernel != call.kernel && !c.support.ok)
      text += fmt::format("; not {}: {}", c.kernel->name, c.support.reason);
  return text;
}

}  // namespace ridgeline
