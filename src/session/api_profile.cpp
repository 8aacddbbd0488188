// profile and ladder as values.
#include "ridgeline/profile.h"
#include "session/api_context.h"
#include "session/api_model.h"
#include "session/ladder_report.h"

namespace ridgeline {
namespace {

std::vector<ProfiledStep> profiled(const std::vector<StepProfile>& profile) {
  std::vector<ProfiledStep> out;
  for (const StepProfile& p : profile) {
    const double share = p.time_us > 0 ? p.step->floor_ns / 1e3 / p.time_us : 0;
    out.push_back({planned_step(*p.step), p.time_us, p.wait_us, share});
  }
  return out;
}

LadderStage stage_of(const StageResult& s) {
  return {std::string(name(s.stage)),
          s.samples.median() / 1e6,
          s.samples.p10() / 1e6,
          s.samples.p90() / 1e6,
          s.samples.count(),
          s.items_per_s,
          s.peak_bytes,
          s.bytes_moved,
          s.flops,
          s.kernels,
          s.max_error,
          s.gain,
          s.undone,
          s.note};
}

}  // namespace

std::vector<ProfiledStep> profile(const PlannedModel& plan, const std::map<std::string, Tensor>& inputs,
                                  double seconds) {
  Runner runner(plan.state().plan, inputs);
  return profiled(profile_plan(runner, *plan.state().plan, seconds));
}

LadderReport ladder(const LoadedModel& model, double seconds, const std::vector<std::string>& disabled_passes,
                    Context& context) {
  parse_pipeline("all", disabled_passes);  // names are checked before any work
  context.measure_machine();
  const Ceilings& ceilings = context.state().ceilings;
  LadderOptions options;
  options.threads = context.threads();
  options.disabled = disabled_passes;
  options.seconds = seconds;
  options.ceilings = &ceilings;
  Model& bound = model.state().model;
  const Ladder built = build_ladder(bound, options);
  LadderReport report;
  for (const StageResult& s : built.stages) report.stages.push_back(stage_of(s));
  report.tolerance = built.tolerance;
  report.floor_ms = built.floor_ms;
  report.rewrites = rewrites_of(built.decisions);
  report.profile = profiled(built.profile);
  report.text = ladder_text(bound, built, ceilings);
  report.json = ladder_json(bound, built, ceilings).dump(1);
  return report;
}

}  // namespace ridgeline
