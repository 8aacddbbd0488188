// cuda.batch_norm: statistics given, so that it is a Program with a number a channel.
#include "kernels/cuda/elementwise/as_program.h"
#include "kernels/cuda/normalize/norm_kernels.h"

namespace ridgeline::cuda {
namespace {

std::string reject(const Problem& p) {
  if (p.flag("training_mode")) return "training_mode = 1: statistics come from the batch";
  for (size_t k = 1; k < p.outputs.size(); ++k)
    if (p.outputs[k].present()) return "running statistics are wanted";
  return "";
}

Rewritten rewrite(const Problem& p) {
  const Extents& shape = p.input(0).shape();
  const auto channel = [&](int input) {
    Layout layout(Extents(shape.size(), 1));
    layout.shape[1] = shape[1];
    layout.strides.assign(shape.size(), 0);
    layout.strides[1] = p.input(input).layout.strides[0];
    return layout;
  };
  bool wide = false;
  std::vector<ProgramInput> inputs;
  constexpr const char* kNames[] = {"x", "s", "b", "m", "d"};
  for (int i = 0; i < 5; ++i) {
    inputs.push_back({kNames[i], p.input(i).dtype});
    wide = wide || p.input(i).dtype == DType::kF64;
  }
  const std::string type = wide ? "f64" : "f32";
  const std::string text =
      fmt::format("cast_{1}((cast_{0}(x) - cast_{0}(m)) * (cast_{0}(s) / sqrt(cast_{0}(d) + {2})) + cast_{0}(b))", type,
                  name(p.input(0).dtype), p.number("epsilon"));
  return rewritten(p, Program::parse(text, inputs, wide ? DType::kF64 : DType::kF32),
                   {{0, p.input(0).layout}, {1, channel(1)}, {2, channel(2)}, {3, channel(3)}, {4, channel(4)}});
}

}  // namespace

constinit const Kernel kBatchNorm = as_program<rewrite, reject>("cuda.batch_norm", "BatchNormalization");

}  // namespace ridgeline::cuda
