#include "session/ladder.h"

#include <algorithm>
#include <cmath>

#include "core/saturate.h"
#include "session/ladder_judge.h"
#include "verify/compare.h"
#include "verify/graph_tolerance.h"

namespace ridgeline {
namespace {

constexpr int kLeastRounds = 7;        // fewer cannot be clear (ladder_judge.h), nor do their medians say much
constexpr int kMoreRounds = 3;         // times the rounds, where a stage's worth is not clear
constexpr double kTrialSeconds = 0.5;  // to decide about one pass

struct Built {
  Compiled compiled;
  std::unique_ptr<Runner> runner;
  std::vector<std::string> without;  // passes that were undone in it
};

class StageBuilder {
 public:
  StageBuilder(Model& model, const LadderOptions& options) : model_(model), options_(options) {}

  Built build(Stage stage) {
    CompileOptions options;
    options.pipeline.stage = stage;
    options.pipeline.lossy = options_.lossy;
    options.pipeline.only_nodes = options_.only_nodes;
    for (const std::string& name : options_.disabled) options.pipeline.disabled.insert(name);
    options.pipeline.undone_nodes = options_.undone_nodes;
    for (const std::string& name : undone_) options.pipeline.disabled.insert(name);
    options.plan.threads = options_.threads;
    options.plan.device = options_.device;
    options.plan.ceilings = options_.ceilings;
    options.plan.ns_per_byte = options_.ns_per_byte;
    Built built;
    built.compiled = compile(model_, options, store_);
    built.runner = std::make_unique<Runner>(built.compiled.plan, model_.feeds);
    built.runner->run();
    built.without = undone_;
    return built;
  }
  void undo(const std::string& pass) { undone_.push_back(pass); }
  void redo(const std::string& pass) { std::erase(undone_, pass); }
  void undo_only(std::vector<std::string> passes) { undone_ = std::move(passes); }

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

// The two in turn, as samples of rounds.
std::vector<Samples> in_turn(Runner& a, Runner& b, double seconds) {
  TimingOptions timing;
  timing.min_seconds = seconds;
  timing.min_samples = kLeastRounds;
  return measure_runners({&a, &b}, timing);
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

int64_t total(const Plan& plan, int64_t (*of)(const Cost&)) {
  int64_t sum = 0;
  for (const Step& step : plan.steps) sum = saturated_sum(sum, of(step.cost));
  return sum;
}

void describe(StageResult& result, const Plan& plan) {
  result.peak_bytes = plan.peak_bytes();
  result.bytes_moved = plan.bytes_moved();
  result.kernels = plan.kernel_count();
  result.reorders = 0, result.reorder_bytes = 0;
  for (const Step& step : plan.steps) {
    if (step.kind != Step::Kind::kCopy) continue;
    ++result.reorders;
    result.reorder_bytes += step.cost.bytes();
  }
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
  ladder.tolerance = graph_tolerance(model.graph, model.bindings, rounding_of(options.lossy));

  StageBuilder builder(model, options);
  std::vector<Built> built;
  for (int s = 0; s < kStageCount; ++s) {
    const Stage stage = Stage(s);
    say(fmt::format("stage '{}': optimizing, checking, timing its passes against the stage before", name(stage)));
    builder.undo_only({});  // what did not pay in one stage may pay with the passes of the next
    Built next = builder.build(stage);
    StageResult result;
    result.stage = stage;
    if (s > 0 && !same_plan(*built[size_t(s - 1)].compiled.plan, *next.compiled.plan)) {
      auto against_before = [&] {
        const std::vector<Samples> t = in_turn(*built[size_t(s - 1)].runner, *next.runner, kTrialSeconds);
        return compare_paired(t[0], t[1]);
      };
      Comparison now = against_before();
      // Slower than the stage before: which pass is to blame?
      std::vector<std::string> applied;
      for (int earlier = s; earlier > 0; --earlier) {
        for (const std::string& pass : passes_that_applied(next.compiled, Stage(earlier))) applied.push_back(pass);
      }
      for (size_t p = 0; p < applied.size() && now.clearly_slower; ++p) {
        builder.undo(applied[p]);
        Built without = builder.build(stage);
        const std::vector<Samples> t = in_turn(*without.runner, *next.runner, kTrialSeconds);
        const Comparison with_it = compare_paired(t[0], t[1]);
        if (!with_it.clearly_slower) {
          builder.redo(applied[p]);
          continue;
        }
        predict(next.compiled.decisions.all, ceilings, next.compiled.plan->threads);
        for (Decision& d :
             undone_decisions(next.compiled.decisions.all, applied[p], with_it, t[0].median() / 1e3, name(stage)))
          ladder.decisions.push_back(std::move(d));
        result.note += fmt::format("{}{} undone ({})", result.note.empty() ? "" : "; ", applied[p], with_it.text());
        next = std::move(without);
        now = against_before();
      }
    }
    ladder.stages.push_back(std::move(result));
    built.push_back(std::move(next));
  }

  say("measuring all stages, interleaved");
  TimingOptions timing;
  timing.min_seconds = options.seconds;
  timing.min_samples = kLeastRounds;
  // Equal plans are measured once: their times could differ by noise alone.
  std::vector<Runner*> runners;
  std::vector<size_t> which(built.size());
  for (size_t s = 0; s < built.size(); ++s) {
    size_t same = 0;
    while (same < s && !same_plan(*built[same].compiled.plan, *built[s].compiled.plan)) ++same;
    which[s] = same < s ? which[same] : runners.size();
    if (same == s) runners.push_back(built[s].runner.get());
  }
  std::vector<Samples> samples = measure_runners(runners, timing);
  // A stage that is not faster, but not clearly slower either, gets more rounds before it is undone.
  auto contested = [&] {
    for (size_t s = 1; s < built.size(); ++s) {
      const Samples &before = samples[which[s - 1]], &now = samples[which[s]];
      const Comparison c = compare_paired(before, now);
      if (which[s] != which[s - 1] && !c.clearly_slower && (c.ratio > 1 || now.median() > before.median())) return true;
    }
    return false;
  };
  for (int more = 0; more < kMoreRounds && contested(); ++more) {
    const std::vector<Samples> further = measure_runners(runners, timing);
    for (size_t f = 0; f < samples.size(); ++f)
      for (const double ns : further[f].times_ns()) samples[f].add(ns);
  }
  size_t runs = 0;  // the stage whose plan stands
  for (size_t s = 0; s < built.size(); ++s) {
    StageResult& result = ladder.stages[s];
    const Samples &before = samples[which[runs]], &now = samples[which[s]];
    const Comparison against = s ? compare_paired(before, now) : Comparison{};
    if (which[s] != which[runs] && (against.ratio > 1 || now.median() > before.median())) {
      predict(built[s].compiled.decisions.all, ceilings, built[s].compiled.plan->threads);
      for (const std::string& pass : passes_that_applied(built[s].compiled, result.stage))
        for (Decision& d : undone_decisions(built[s].compiled.decisions.all, pass, against, before.median() / 1e3,
                                            name(result.stage)))
          ladder.decisions.push_back(std::move(d));
      result.undone = true;
      result.note += fmt::format("{}undone, {} ({}): runs the plan of '{}'", result.note.empty() ? "" : "; ",
                                 against.clearly_slower ? "slower" : "no gain beyond noise", against.text(),
                                 name(ladder.stages[runs].stage));
    } else {
      if (s && which[s] == which[runs])
        result.note += fmt::format("{}the same plan as '{}', measured once", result.note.empty() ? "" : "; ",
                                   name(ladder.stages[runs].stage));
      else
        result.gain = 1 - against.ratio;
      if (s && which[s] != which[runs] && !against.clearly_faster)
        result.note += fmt::format("{}the gain is within noise ({})", result.note.empty() ? "" : "; ", against.text());
      runs = s;
    }
    result.samples = samples[which[runs]];
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
  builder.undo_only(final.without);
  for (int s = 1; s < kStageCount; ++s) {
    for (const std::string& pass : passes_that_applied(final.compiled, Stage(s))) {
      builder.undo(pass);
      Built without = builder.build(ladder.stages[runs].stage);
      double slower = 1;
      if (!same_plan(*final.compiled.plan, *without.compiled.plan)) {
        const std::vector<Samples> t = in_turn(*final.runner, *without.runner, kTrialSeconds / 2);
        slower = median_ratio(t[1], t[0]);
      }
      share_gain(all, pass, (slower - 1) * ladder.stages[runs].samples.median() / 1e3);
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
