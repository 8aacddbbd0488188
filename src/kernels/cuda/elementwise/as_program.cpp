#include "kernels/cuda/elementwise/as_program.h"

#include "ir/graph.h"

namespace ridgeline::cuda {

Rewritten rewritten(const Problem& p, const Program& program, const std::vector<std::pair<int, Layout>>& operands) {
  Rewritten r;
  Problem& e = r.problem;
  e.op = &elementwise_op();
  e.device = p.device;
  e.threads = p.threads;
  for (const auto& [input, layout] : operands) {
    Operand operand = p.input(input);
    operand.layout = layout;
    operand.constant = {};
    e.inputs.push_back(std::move(operand));
    r.inputs.push_back(input);
  }
  e.outputs = {p.outputs[0]};
  std::optional<Program> whole = program;
  if (p.has_epilogue()) {
    whole = Program::compose(program, 0, *p.program, 0);
    for (int k = 0; k < p.epilogue_operands(); ++k) {
      e.inputs.push_back(p.inputs[size_t(p.op_inputs + k)]);
      r.inputs.push_back(p.op_inputs + k);
    }
  }
  e.op_inputs = int(e.inputs.size());
  if (whole) e.program = std::make_shared<const Program>(*std::move(whole));
  return r;
}

}  // namespace ridgeline::cuda
