// Loads a model, optimizes it, plans it and runs it: run_model MODEL.onnx
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "ridgeline/ridgeline.h"

int main(int count, char** arguments) try {
  if (count != 2) {
    std::fprintf(stderr, "usage: run_model MODEL.onnx\n");
    return 2;
  }
  const ridgeline::LoadedModel model = ridgeline::LoadedModel::load(arguments[1]);
  const ridgeline::OptimizedModel optimized = ridgeline::optimize(model);
  const ridgeline::PlannedModel plan = ridgeline::plan(optimized);
  std::printf("%lld parameters, %zu steps, %.1f MB at most\n", static_cast<long long>(model.parameters()),
              plan.steps().size(), double(plan.peak_bytes()) / 1e6);

  ridgeline::Run run(plan);
  const auto outputs = run(model.feeds());  // by name; here the seeded inputs that loading made

  // The control: every node by its naive reference, in double.
  const std::vector<ridgeline::Tensor> reference = model.reference();
  double error = 0, largest = 0;
  size_t i = 0;
  for (const ridgeline::TensorInfo& info : plan.outputs()) {
    const ridgeline::Tensor& got = outputs.at(info.name);
    const ridgeline::Tensor& want = reference[i++];
    for (int64_t k = 0; k < got.elements(); ++k) {
      error = std::max(error, std::abs(got.f64(k) - want.f64(k)));
      largest = std::max(largest, std::abs(want.f64(k)));
    }
    std::printf("output %s %s\n", info.name.c_str(), ridgeline::text(info.shape).c_str());
  }
  std::printf("largest error %.2g of %.2g\n", error, largest);
  return error <= 1e-3 * largest ? 0 : 1;
} catch (const ridgeline::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return error.exit_code();
}
