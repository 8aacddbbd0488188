// Kernels of operators that are elementwise in truth, a scale of each channel say: the operator is written as a Program
// over operands whose strides repeat, and cuda.program runs it.
#pragma once

#include "kernels/cuda/compiler.h"
#include "kernels/cuda/elementwise/elementwise_kernels.h"
#include "kernels/kernel.h"

namespace ridgeline::cuda {

/// The elementwise problem of `inputs` (each with its place among p's inputs) and p's outputs: `program`, then p's
/// epilogue. No program: it would be too long.
struct Rewritten {
  Problem problem;
  std::vector<int> inputs;  // of the original
};

/// `reject` says why the problem cannot be written so; "" if it can.
template <Rewritten (*kRewrite)(const Problem&), std::string (*kReject)(const Problem&)>
constexpr Kernel as_program(std::string_view name, std::string_view op) {
  Kernel k;
  k.name = name;
  k.op = op;
  k.device = DeviceKind::kCuda;
  k.supports = [](const Problem& p) {
    if (const std::string reason = kReject(p); !reason.empty()) return no("{}", reason);
    const Rewritten r = kRewrite(p);
    return r.problem.program ? kProgram.supports(r.problem) : no("its epilogue makes the program too long");
  };
  k.estimate = [](const Problem& p, const Tile& tile, const Ceilings& c) {
    return kProgram.estimate(kRewrite(p).problem, tile, c);
  };
  k.source = [](const Problem& p, const Tile& tile) { return kProgram.source(kRewrite(p).problem, tile); };
  k.launch = [](const KernelCall& call, const Buffers& buffers, StreamHandle* stream) {
    const Rewritten r = kRewrite(call.problem);
    KernelCall inner = call;
    inner.problem = r.problem;
    std::vector<void*> inputs;
    for (int i : r.inputs) inputs.push_back(buffers.inputs[i]);
    kProgram.launch(inner, {inputs.data(), buffers.outputs, buffers.workspace}, stream);
  };
  return k;
}

/// Program and operands put together, with p's epilogue behind. `operands`: p's inputs by number, each with the layout
/// in which it is to be seen.
Rewritten rewritten(const Problem& p, const Program& program, const std::vector<std::pair<int, Layout>>& operands);

}  // namespace ridgeline::cuda
