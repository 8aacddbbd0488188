#include "session/ladder.h"

#include <algorithm>
#include <cmath>

#include "core/saturate.h"
#include "verify/compare.h"
#include "verify/graph_tolerance.h"

namespace ridgeline {
namespace {

constexpr int kLeastRounds = 7;        // medians of fewer say little
constexpr double kNoise = 0.005;       // paired medians of one plan against itself differ by up to half a percent here
constexpr double kSurely = 0.7;        // of the rounds: a coin that falls so in 7 of 7 to 12 is loaded
constexpr double kTrialSeconds = 0.5;  // to decide about one pass

struct Built {
  Compiled compiled;
  std::unique_ptr<Runner> runner;
};

class StageBuilder {
 public:
  StageBuilder(Model& model, const LadderOptions& options) : model_(model), options_(options) {}

  Built build(Stage stage) {
    CompileOptions options;
    options.pipeline.stage = stage;
    for (const std::string& name : options_.disabled) options.pipeline.disabled.insert(name);
    for (const std::string& name : undone_) options.pipeline.disabled.insert(name);
    options.plan.threads = options_.threads;
    options.plan.ceilings = options_.ceilings;
    Built built;
    built.compiled = compile(model_, options, store_);
    built.runner = std::make_unique<Runner>(built.compiled.plan, model_.feeds);
    built.runner->run();
    return built;
  }
  void undo(const std::string& pass) { undone_.push_back(pass); }
  void redo(const std::string& pass) { std::erase(undone_, pass); }
  void redo_all() { undone_.clear(); }

 private:
  Model& model_;
  const LadderOptions& options_;
  ConstantStore store_;
  std::vector<std::string> undone_;
};

double error_against(const Runner& runner, const ReferenceResult& reference) {
  double worst = 0;
  for (size_t i = 0; i < runner.outputs().size(); ++i) {
    Tensor y = runner.outputs()[i];
    if (reference.items > 0) {  // the first items of the batch alone
      Extents shape = y.shape();
      shape[0] = reference.items;
      y = y.reshaped(shape);
    }
    worst = std::max(worst, max_error(y, reference.outputs[i]));
  }
  return worst;
}

// Is b slower than a beyond noise? The paired median says by how much, the share of rounds in which it is slower says
// how surely.
bool clearly_slower(const Samples& a, const Samples& b) {
  int slower = 0;
  const int rounds = std::min(a.count(), b.count());
  for (int i = 0; i < rounds; ++i) slower += b.times_ns()[size_t(i)] > a.times_ns()[size_t(i)];
  return median_ratio(b, a) > 1 + kNoise && slower >= kSurely * rounds;
}

// Median of the paired ratios b / a.
double ratio(Runner& a, Runner& b, double seconds) {
  TimingOptions timing;
  timing.min_seconds = seconds;
  timing.min_samples = kLeastRounds;
  const std::vector<Samples> s = measure_interleaved({[&] { a.run(); }, [&] { b.run(); }}, timing);
  return median_ratio(s[1], s[0]);
}

std::vector<std::string> passes_that_applied(const Compiled& compiled, Stage stage) {
  std::vector<std::string> names;
  for (const Decision& d : compiled.decisions.all) {
    if (d.action == Action::kApplied && d.stage == int(stage) &&
        std::find(names.begin(), names.end(), d.pass) == names.end())
      names.push_back(d.pass);
  }
  return names;
}

void mark_undone(std::vector<Decision>& decisions, const std::string& pass, double measured_ratio, double before_us) {
  Decision d;
  d.pass = pass;
  d.action = Action::kUndone;
  d.reason_code = "slower";
  d.reason = fmt::format("measured {:.1f} % slower on this machine and shape; undone", (measured_ratio - 1) * 100);
  d.measured_gain_us = (1 - measured_ratio) * before_us;
  decisions.push_back(std::move(d));
}

int64_t total(const Plan& plan, int64_t (*of)(const Cost&)) {
  int64_t sum = 0;
  for (const Step& step : plan.steps) sum = saturated_sum(sum, of(step.cost));
  return sum;
}

void describe(StageResult& result, const Plan& plan) {
  result.peak_bytes = plan.peak_bytes();
  result.bytes_moved = plan.bytes_moved();
  result.kernels = plan.kernel_count();
  result.flops = total(plan, [](const Cost& c) { return c.flops; });
  result.executed_flops = total(plan, [](const Cost& c) { return c.executed_flops >= 0 ? c.executed_flops : c.flops; });
}

// Bytes at DRAM or cache copy bandwidth, and launches, as time.
void predict(std::vector<Decision>& decisions, const Ceilings& ceilings, int threads) {
  for (Decision& d : decisions) {
    if (d.action != Action::kApplied) continue;
    d.predicted_gain_us = (ceilings.stream_ns(d.bytes_saved / 2, d.bytes_saved / 2, threads) +
                           d.launches_saved * ceilings.launch_ns.at(threads, ceilings.cores)) /
                          1e3;
  }
}

// What a pass gained in all, shared among its rewrites by their predicted gain.
void share_gain(std::vector<Decision>& decisions, const std::string& pass, double gain_us) {
  double predicted = 0;
  int count = 0;
  for (const Decision& d : decisions)
    if (d.pass == pass && d.action == Action::kApplied) {
      predicted += d.predicted_gain_us;
      ++count;
    }
  for (Decision& d : decisions) {
    if (d.pass != pass || d.action != Action::kApplied) continue;
    d.measured_gain_us = gain_us * (predicted > 0 ? d.predicted_gain_us / predicted : 1.0 / count);
  }
}

}  // namespace

std::vector<StepProfile> profile_plan(Runner& runner, const Plan& plan, double seconds) {
  std::vector<Samples> times(plan.steps.size()), waits(plan.steps.size());
  std::vector<Executor::StepTime> stamps(plan.steps.size());
  const int64_t end = now_ns() + int64_t(seconds * 1e9);
  for (int round = 0; round < kLeastRounds || (now_ns() < end && round < 2000); ++round) {
    runner.run_profiled(stamps);
    for (size_t s = 0; s < stamps.size(); ++s) {
      times[s].add(double(stamps[s].end_ns - stamps[s].start_ns));
      waits[s].add(double(stamps[s].wait_ns));
    }
  }
  std::vector<StepProfile> profile(plan.steps.size());
  for (size_t s = 0; s < stamps.size(); ++s)
    profile[s] = {&plan.steps[s], times[s].median() / 1e3, waits[s].median() / 1e3};
  return profile;
}

Ladder build_ladder(Model& model, const LadderOptions& options) {
  auto say = [&](const std::string& line) {
    if (options.progress) options.progress(line);
  };
  Ladder ladder;
  const Ceilings& ceilings = *options.ceilings;
  say("computing the reference (naive, in double; kept in the cache folder)");
  const ReferenceResult reference = reference_outputs(model, 0);
  ladder.reference_items = reference.items;
  ladder.tolerance = graph_tolerance(model.graph, model.bindings);

  StageBuilder builder(model, options);
  std::vector<Built> built;
  for (int s = 0; s < kStageCount; ++s) {
    const Stage stage = Stage(s);
    say(fmt::format("stage '{}': optimizing, planning, checking", name(stage)));
    builder.redo_all();  // what did not pay in one stage may pay with the passes of the next
    Built next = builder.build(stage);
    StageResult result;
    result.stage = stage;
    std::vector<std::pair<std::string, double>> undone;
    if (s > 0 && !passes_that_applied(next.compiled, stage).empty()) {
      double now = ratio(*built[size_t(s - 1)].runner, *next.runner, kTrialSeconds);
      // Slower than the stage before: which pass is to blame?
      std::vector<std::string> applied;
      for (int earlier = s; earlier > 0; --earlier) {
        for (const std::string& pass : passes_that_applied(next.compiled, Stage(earlier))) applied.push_back(pass);
      }
      for (size_t p = 0; p < applied.size() && now > 1 + kNoise; ++p) {
        builder.undo(applied[p]);
        Built without = builder.build(stage);
        const double then = ratio(*next.runner, *without.runner, kTrialSeconds);
        if (then < 1 - kNoise) {
          undone.push_back({applied[p], 1 / then});
          next = std::move(without);
          now = ratio(*built[size_t(s - 1)].runner, *next.runner, kTrialSeconds);
        } else {
          builder.redo(applied[p]);
        }
      }
    }
    for (const auto& [pass, slower] : undone) {
      mark_undone(ladder.decisions, pass, slower, 0);
      result.note +=
          fmt::format("{}{} undone ({:.1f} % slower)", result.note.empty() ? "" : "; ", pass, (slower - 1) * 100);
    }
    ladder.stages.push_back(std::move(result));
    built.push_back(std::move(next));
  }

  say("measuring all stages, interleaved");
  TimingOptions timing;
  timing.min_seconds = options.seconds;
  timing.min_samples = kLeastRounds;
  std::vector<TimedFunction> functions;
  for (Built& b : built) functions.push_back([&b] { b.runner->run(); });
  std::vector<Samples> samples = measure_interleaved(functions, timing);
  size_t runs = 0;  // the stage whose plan stands
  for (size_t s = 0; s < built.size(); ++s) {
    StageResult& result = ladder.stages[s];
    const double against = s ? median_ratio(samples[s], samples[runs]) : 1;
    if (s && clearly_slower(samples[runs], samples[s])) {
      for (const std::string& pass : passes_that_applied(built[s].compiled, result.stage))
        mark_undone(ladder.decisions, pass, against, samples[runs].median() / 1e3);
      result.undone = true;
      result.note += fmt::format("{}did not pay ({:+.1f} %): runs the plan of '{}'", result.note.empty() ? "" : "; ",
                                 (against - 1) * 100, name(ladder.stages[runs].stage));
    } else {
      result.gain = 1 - against;
      runs = s;
    }
    result.samples = samples[runs];
    describe(result, *built[runs].compiled.plan);
    result.max_error = error_against(*built[runs].runner, reference);
    const Tensor* first = model.input_names.empty() ? nullptr : &model.feeds.at(model.input_names[0]);
    const double items = first && first->rank() > 0 ? double(first->shape()[0]) : 1;
    result.items_per_s = items / (result.samples.median() / 1e9);
  }

  Built& final = built[runs];
  for (const Step& step : final.compiled.plan->steps) ladder.floor_ms += step.floor_ns / 1e6;
  std::vector<Decision> all = final.compiled.decisions.all;
  predict(all, ceilings, final.compiled.plan->threads);
  say("measuring what each pass gained");
  for (int s = 1; s < kStageCount; ++s) {
    for (const std::string& pass : passes_that_applied(final.compiled, Stage(s))) {
      builder.undo(pass);
      Built without = builder.build(ladder.stages[runs].stage);
      const double slower = ratio(*final.runner, *without.runner, kTrialSeconds / 2);
      share_gain(all, pass, (slower - 1) * samples[runs].median() / 1e3);
      builder.redo(pass);
    }
  }
  all.insert(all.end(), ladder.decisions.begin(), ladder.decisions.end());
  ladder.decisions = std::move(all);
  ladder.profile = profile_plan(*final.runner, *final.compiled.plan, 0.5);
  ladder.final = std::move(final.compiled);
  return ladder;
}

}  // namespace ridgeline
