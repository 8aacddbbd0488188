#include "kernels/cpu/elementwise/epilogue_pass.h"

namespace ridgeline::cpu {

Support EpiloguePass::check(const Problem& p) {
  if (!p.has_epilogue()) return yes();
  if (p.output().dtype != DType::kF32) return no("an epilogue on an output in {}", name(p.output().dtype));
  if (p.program->inputs[0].dtype != DType::kF32)  // a program that widens what the operator gives
    return no("an epilogue on {} that gives f32", name(p.program->inputs[0].dtype));
  if (p.program->outputs.size() != 1) return no("an epilogue with {} results", p.program->outputs.size());
  if (p.epilogue_operands() > 14) return no("an epilogue with {} operands", p.epilogue_operands());
  if (const std::string why = PreparedProgram::reject(*p.program); !why.empty()) return no("epilogue: {}", why);
  return yes();
}

EpiloguePass::EpiloguePass(const Problem& p) {
  if (!p.has_epilogue()) return;
  program_.emplace(*p.program);
  first_ = p.op_inputs;
  std::vector<const Layout*> layouts = {&p.output().layout};
  for (size_t k = size_t(first_); k < p.inputs.size(); ++k) {
    layouts.push_back(&p.inputs[k].layout);
    bytes_.push_back(info(p.inputs[k].dtype).bits / 8);
  }
  nest_ = make_loop_nest(p.output().shape(), layouts, 0);
}

void EpiloguePass::run(const Buffers& buffers, const ThreadPool& pool) const {
  if (!program_) return;
  nest_.run(pool, 16 << 10, [&](const int64_t* offsets, int64_t rows, int64_t cols) {
    float* y = static_cast<float*>(buffers.outputs[0]) + offsets[0];
    TileInput in[16];
    in[0] = {y, nest_.row_stride(0), nest_.col_stride(0)};
    for (size_t k = 0; k < bytes_.size(); ++k) {
      const char* data = static_cast<const char*>(buffers.inputs[first_ + int(k)]);
      in[k + 1] = {data + offsets[k + 1] * bytes_[k], nest_.row_stride(int(k) + 1), nest_.col_stride(int(k) + 1)};
    }
    const TileOutput out = {y, nest_.row_stride(0), nest_.col_stride(0)};
    run_tile(*program_, rows, cols, in, &out);
  });
}

}  // namespace ridgeline::cpu
