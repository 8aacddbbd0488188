// Reads the ladder as values: what each stage brought, which rewrites were refused, where the time goes now.
// read_ladder MODEL.onnx
#include <algorithm>
#include <cstdio>

#include "ridgeline/ridgeline.h"

int main(int count, char** arguments) try {
  if (count != 2) {
    std::fprintf(stderr, "usage: read_ladder MODEL.onnx\n");
    return 2;
  }
  const ridgeline::LoadedModel model = ridgeline::LoadedModel::load(arguments[1]);
  ridgeline::LadderReport report = ridgeline::ladder(model, 0.5);
  bool right = report.stages.size() == 4;
  for (const ridgeline::LadderStage& stage : report.stages) {
    std::printf("%-12s %9.3f ms  %4d kernels  %8.2f MB moved  gain %5.1f %%  error %.1e\n", stage.name.c_str(),
                stage.median_ms, stage.kernels, double(stage.bytes_moved) / 1e6, stage.gain * 100, stage.max_error);
    right = right && stage.max_error <= report.tolerance;
  }
  std::printf("floor %.3f ms, tolerance %.1e\n", report.floor_ms, report.tolerance);

  for (const ridgeline::Rewrite& rewrite : report.rewrites) {
    if (!rewrite.applied) std::printf("refused: %s: %s\n", rewrite.pass.c_str(), rewrite.reason.c_str());
  }

  std::sort(report.profile.begin(), report.profile.end(),
            [](const auto& a, const auto& b) { return a.time_us > b.time_us; });
  for (size_t i = 0; i < std::min<size_t>(3, report.profile.size()); ++i) {
    const ridgeline::ProfiledStep& p = report.profile[i];
    std::printf("%8.1f us  %3.0f %% of its roof (%s)  %s  %s\n", p.time_us, p.roof_share * 100, p.step.bound.c_str(),
                p.step.kernel.c_str(), p.step.problem.c_str());
  }
  return right ? 0 : 1;
} catch (const ridgeline::Error& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return error.exit_code();
}
