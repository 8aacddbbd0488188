#include "session/regret_audit.h"

#include <algorithm>
#include <charconv>
#include <random>

#include "ops/catalogue.h"
#include "session/problem_words.h"
#include "tune/held_out.h"
#include "tune/known.h"
#include "tune/probes.h"

namespace ridgeline {
namespace {

class Auditor {
 public:
  Auditor(const AuditOptions& options, const Ceilings& ceilings) : options_(options), ceilings_(ceilings) {}

  void held_out(std::string_view family, Audit& audit) {
    std::mt19937_64 random(options_.seed * 7919 + std::hash<std::string_view>()(family));
    const Known& known = known_choices();
    for (int found = 0, drawn = 0; found < options_.cases && drawn < 50 * options_.cases; ++drawn) {
      const Problem problem = held_out_problem(family, random, options_.threads);
      if (known.table && known.table->find(problem)) continue;  // not held out
      if (try_problem(problem, fmt::format("{} {}/{}", family, found + 1, options_.cases), audit.shapes)) ++found;
    }
  }

  void rows(std::string_view family, const std::vector<MeasuredRow>& all, Audit& audit) {
    std::vector<const MeasuredRow*> list;
    const std::string threads = fmt::format("threads={} ", options_.threads);
    for (const MeasuredRow& row : all)
      if (row.key.starts_with(threads)) list.push_back(&row);
    std::mt19937_64 random(options_.seed);
    std::shuffle(list.begin(), list.end(), random);
    int tried = 0;
    for (const MeasuredRow* row : list) {
      if (tried >= options_.rows) break;
      const Problem problem = problem_of_key(row->key);
      if (problem.op->family != family) continue;
      if (stale(*row, problem)) {
        audit.stale.push_back(tile_table_line(*row));
        continue;
      }
      if (try_problem(problem, fmt::format("{} row {}", family, tried + 1), audit.table_rows)) ++tried;
    }
  }

 private:
  bool try_problem(const Problem& problem, const std::string& which, std::vector<RegretShape>& into) {
    const Choice choice = choose(problem, ceilings_);
    if (all_candidates(problem, choice, true).size() < 2) return false;
    TrialOptions trial;
    trial.seconds = options_.seconds;
    trial.seed = options_.seed + 1;
    into.push_back(regret_shape(problem_words(problem), try_all(problem, choice, trial)));
    const RegretShape& shape = into.back();
    if (options_.progress)
      options_.progress(
          fmt::format("[{}] {:.2f} of {} candidates  {}", which, shape.regret, shape.candidates, shape.words));
    return true;
  }

  bool stale(const MeasuredRow& row, const Problem& problem) const {
    for (const Candidate& c : choose_kernel(problem, ceilings_).candidates)
      if (c.kernel->name == row.choice.kernel && c.kernel->version == row.choice.version && c.support.ok)
        return !check_tile(*c.kernel, problem, row.choice.tile).fits();
    return true;
  }

  const AuditOptions& options_;
  const Ceilings& ceilings_;
};

}  // namespace

Problem problem_of_key(const std::string& key) {
  const auto broken = [&](const char* why) { fail(ErrorCode::kUsage, "'{}' is no row's problem: {}", key, why); };
  int threads = 0;
  const size_t space = key.find(' ');
  if (!key.starts_with("threads=") || space == std::string::npos) broken("it begins with threads=N");
  std::from_chars(key.data() + 8, key.data() + space, threads);
  if (threads < 1) broken("threads is not a number");
  const std::string text = key.substr(space + 1);
  const size_t end = std::min(text.find(' '), text.size());
  const OpSchema* op = find_op_in_any_domain(text.substr(0, end));
  if (!op) broken("there is no such operator");
  Problem problem = parse_problem(*op, end < text.size() ? text.substr(end + 1) : "");
  problem.threads = threads;
  return problem;
}

Audit audit_choice(const AuditOptions& options) {
  const Ceilings ceilings = machine_ceilings();
  const Known& known = known_choices();
  Audit audit;
  audit.table = known.table_source;
  std::vector<std::string_view> families = held_out_families();
  if (!options.family.empty()) {
    if (std::find(families.begin(), families.end(), options.family) == families.end())
      fail(ErrorCode::kUsage, "--family {}: only problems of these leave a choice: {}", options.family,
           fmt::join(families, ", "));
    families = {options.family};
  }
  Auditor auditor(options, ceilings);
  for (const std::string_view family : families) {
    auditor.held_out(family, audit);
    if (known.table) auditor.rows(family, known.table->rows(), audit);
    if (known.tuned) auditor.rows(family, known.tuned->rows(), audit);
  }
  return audit;
}

}  // namespace ridgeline
