#include "session/tuning.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "core/new_file.h"
#include "kernels/reference/reference.h"
#include "session/problem_words.h"
#include "session/regret_report.h"
#include "tune/bench.h"
#include "tune/probes.h"

namespace ridgeline {
namespace {

using Json = nlohmann::ordered_json;

std::string name_of(const Candidate& c) {
  const std::string tile = tile_words(c.tile);
  return std::string(c.kernel->name) + (tile.empty() ? "" : " tile=" + tile);
}

}  // namespace

TuningSession::TuningSession(TuningOptions options) : options_(std::move(options)) {
  if (options_.threads <= 0) options_.threads = available_cores();
  if (!options_.progress) options_.progress = [](const std::string&) {};
}

void TuningSession::forget() { forgotten_ = database_.forget_all(); }

void TuningSession::tune_words(const std::string& op, const std::vector<std::string>& keys) {
  const BenchProblem given = parse_bench_problem(op, keys, options_.threads);
  if (given.tile || !given.forced.empty()) fail(ErrorCode::kUsage, "tune chooses kernel= and tile= itself");
  if (given.warm) fail(ErrorCode::kUsage, "tune measures with rotated buffers, as in a model: warm=1 is for bench");
  std::vector<Item> items;
  for (const auto& [layout, problem] : layouts_of(given.problem)) items.push_back({problem, 1, 0});
  tune_all(std::move(items));
}

void TuningSession::tune_model(Model model) {
  CompileOptions options;
  options.plan.threads = options_.threads;
  ConstantStore store;
  const Compiled compiled = compile(model, options, store);
  std::map<std::string, Item> items;
  for (const Step& step : compiled.plan->steps) {
    Item& item = items[problem_key(step.call.problem)];
    if (!item.problem.op) item = {step.call.problem, 0, 0};
    ++item.steps;
    item.predicted_ns += step.predicted_ns;
  }
  std::vector<Item> list;
  for (auto& [key, item] : items) list.push_back(std::move(item));
  std::stable_sort(list.begin(), list.end(),
                   [](const Item& a, const Item& b) { return a.predicted_ns > b.predicted_ns; });
  tune_all(std::move(list));
}

void TuningSession::tune_all(std::vector<Item> items) {
  if (!load_ceilings(this_cpu().fingerprint()))
    options_.progress("ridgeline: measuring the machine's ceilings, once (about 15 s)");
  ceilings_ = machine_ceilings();
  std::erase_if(items, [&](const Item& item) {
    const Choice choice = choose_untuned(item.problem, ceilings_);
    const bool only = all_candidates(item.problem, choice, true).size() < 2;
    if (only) ++only_;
    return only;
  });
  const int64_t start = now_ns();
  for (size_t i = 0; i < items.size(); ++i) {
    if (options_.budget_seconds > 0 && double(now_ns() - start) > options_.budget_seconds * 1e9) {
      skipped_ = int64_t(items.size() - i);
      options_.progress(fmt::format("ridgeline: the budget of {} s is used up; {} problems were not tried",
                                    options_.budget_seconds, skipped_));
      break;
    }
    tune_one(items[i], i + 1, items.size());
  }
}

void TuningSession::tune_one(const Item& item, size_t number, size_t count) {
  Result result;
  result.words = problem_words(item.problem);
  result.steps = item.steps;
  TrialOptions options;
  options.seconds = options_.seconds;
  options.seed = options_.seed;
  const Choice incumbent = choose_untuned(item.problem, ceilings_);
  result.trial = try_all(item.problem, incumbent, options);
  const Trial& t = result.trial;
  const std::string key = problem_key(item.problem);
  std::string said;
  if (t.better()) {
    const Candidate& best = t.rows[size_t(t.challenger)].candidate;
    database_.store({key, {std::string(best.kernel->name), best.kernel->version, best.tile, t.duel.challenger_ns}});
    result.stored = true;
    said = fmt::format("{} instead of {}: {:.1f} % less time", name_of(best),
                       name_of(t.rows[size_t(t.incumbent)].candidate), 100 * (1 - t.duel.ratio));
  } else {
    result.forgotten = database_.forget(key);
    said = fmt::format("{} stays", name_of(t.rows[size_t(t.incumbent)].candidate));
    if (t.challenger >= 0 && t.duel.verdict == Verdict::kCannotTell)
      said += fmt::format(" (cannot tell: {} takes {:.2f} to {:.2f} of its time)",
                          name_of(t.rows[size_t(t.challenger)].candidate), t.duel.low, t.duel.high);
    if (result.forgotten) said += "; an earlier result is forgotten";
  }
  options_.progress(fmt::format("[{}/{}] {}\n        {}", number, count, result.words, said));
  results_.push_back(std::move(result));
}

void TuningSession::export_to(const std::string& file) const {
  NewFileName name(file);
  {
    std::ofstream out(name.part());
    out << "# Tiles measured by `ridgeline tune` on: " << machine_key() << "\n# class " << machine_class()
        << "\n# threads, kernel, its version, tile (rows x columns x k; - : by its rule), microseconds, problem\n";
    for (const MeasuredRow& row : database_.rows()) out << tile_table_line(row) << '\n';
    out.close();
    if (!out) fail(ErrorCode::kResource, "cannot write {}", file);
  }
  if (!name.finish()) fail(ErrorCode::kResource, "cannot write {}", file);
}

Json TuningSession::json() const {
  Json problems = Json::array();
  std::vector<RegretShape> shapes;
  int64_t stored = 0, cannot_tell = 0;
  for (const Result& r : results_) {
    const Trial& t = r.trial;
    stored += r.stored;
    cannot_tell += t.challenger >= 0 && t.duel.verdict == Verdict::kCannotTell;
    Json candidates = Json::array();
    for (const TrialRow& row : t.rows)
      candidates.push_back({{"kernel", std::string(row.candidate.kernel->name)},
                            {"tile", tile_words(row.candidate.tile)},
                            {"screened_us", row.time_ns / 1e3},
                            {"rounds", row.rounds}});
    const Candidate& mine = t.rows[size_t(t.incumbent)].candidate;
    Json entry = {{"problem", r.words},
                  {"threads", options_.threads},
                  {"steps", r.steps},
                  {"kernel_before", std::string(mine.kernel->name)},
                  {"tile_before", tile_words(mine.tile)},
                  {"chosen_by_before", t.incumbent_by},
                  {"stored", r.stored}};
    if (t.challenger >= 0) {
      const Candidate& best = t.rows[size_t(t.challenger)].candidate;
      entry.update({{"challenger", std::string(best.kernel->name)},
                    {"challenger_tile", tile_words(best.tile)},
                    {"ratio", t.duel.ratio},
                    {"ratio_low", t.duel.low},
                    {"ratio_high", t.duel.high},
                    {"rounds", t.duel.rounds},
                    {"verdict", std::string(name(t.duel.verdict))},
                    {"incumbent_us", t.duel.incumbent_ns / 1e3},
                    {"challenger_us", t.duel.challenger_ns / 1e3}});
    }
    entry["candidates"] = candidates;
    problems.push_back(entry);
    shapes.push_back(regret_shape(r.words, t));
  }
  return {{"machine", machine_key()},
          {"database", database_.path().string()},
          {"problems", problems},
          {"stored", stored},
          {"cannot_tell", cannot_tell},
          {"only_one_candidate", only_},
          {"not_tried", skipped_},
          {"forgotten", forgotten_},
          {"rows", int64_t(database_.rows().size())},
          {"regret", regret_json(shapes)}};
}

std::string TuningSession::text(bool list) const {
  std::string text;
  for (const Result& r : results_) {
    if (results_.size() > 2) break;  // one operator: all candidates; a model's stand in the JSON
    const Trial& t = r.trial;
    std::vector<const TrialRow*> rows;
    for (const TrialRow& row : t.rows) rows.push_back(&row);
    std::stable_sort(rows.begin(), rows.end(),
                     [](const TrialRow* a, const TrialRow* b) { return a->time_ns < b->time_ns; });
    text += fmt::format("{}\n{:<28} {:<18} {:>11}\n", r.words, "kernel", "tile", "us");
    for (const TrialRow* row : rows) {
      const bool incumbent = row == &t.rows[size_t(t.incumbent)];
      const std::string tile = tile_words(row->candidate.tile);
      text +=
          fmt::format("{:<28} {:<18} {:>11.2f}{}\n", row->candidate.kernel->name, tile.empty() ? "by its rule" : tile,
                      row->time_ns / 1e3, incumbent ? fmt::format("  <- by {}", t.incumbent_by) : "");
    }
    if (t.challenger >= 0)
      text += fmt::format(
          "{} against {}: {:.3f} of its time, with 99 % confidence {:.3f} to {:.3f} ({} rounds): {}{}\n",
          name_of(t.rows[size_t(t.challenger)].candidate), name_of(t.rows[size_t(t.incumbent)].candidate), t.duel.ratio,
          t.duel.low, t.duel.high, t.duel.rounds, name(t.duel.verdict), r.stored ? ", stored" : "");
  }
  const std::vector<MeasuredRow> rows = database_.rows();
  if (list)
    for (const MeasuredRow& row : rows) text += tile_table_line(row) + "\n";
  int64_t stored = 0;
  for (const Result& r : results_) stored += r.stored;
  if (!results_.empty() || only_)
    text += fmt::format("{} problems tried, {} with one candidate alone, {} better choices stored\n", results_.size(),
                        only_, stored);
  if (forgotten_) text += fmt::format("{} results forgotten\n", forgotten_);
  text += fmt::format("{}: {} results of this machine\n", database_.path().string(), rows.size());
  return text;
}

}  // namespace ridgeline
