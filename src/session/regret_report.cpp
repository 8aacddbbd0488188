#include "session/regret_report.h"

#include <algorithm>
#include <cmath>

#include "tune/bench.h"

namespace ridgeline {

using Json = nlohmann::ordered_json;

RegretShape regret_shape(const std::string& words, const Trial& trial) {
  RegretShape shape;
  const TrialRow& mine = trial.rows[size_t(trial.incumbent)];
  shape.words = words;
  shape.kernel = mine.candidate.kernel->name;
  shape.tile = tile_words(mine.candidate.tile);
  shape.chosen_by = trial.incumbent_by;
  shape.candidates = int(trial.rows.size());
  shape.chosen_us = (trial.duel.rounds ? trial.duel.incumbent_ns : mine.time_ns) / 1e3;
  shape.regret = trial.regret();
  if (trial.challenger >= 0 && trial.duel.rounds && trial.duel.low > 0) {
    shape.low = 1 / trial.duel.high;
    shape.high = 1 / trial.duel.low;
  }
  if (!trial.better()) return shape;
  const Candidate& best = trial.rows[size_t(trial.challenger)].candidate;
  shape.best = best.kernel->name;
  shape.best_tile = tile_words(best.tile);
  return shape;
}

Regret regret_of(const std::vector<RegretShape>& shapes) {
  Regret r;
  double logs = 0;
  for (const RegretShape& shape : shapes) {
    logs += std::log(shape.regret);
    r.worst = std::max(r.worst, shape.regret);
  }
  r.shapes = int(shapes.size());
  r.geomean = shapes.empty() ? 1 : std::exp(logs / double(shapes.size()));
  return r;
}

namespace {

std::vector<const RegretShape*> by_regret(const std::vector<RegretShape>& shapes) {
  std::vector<const RegretShape*> out;
  for (const RegretShape& shape : shapes) out.push_back(&shape);
  std::stable_sort(out.begin(), out.end(),
                   [](const RegretShape* a, const RegretShape* b) { return a->regret > b->regret; });
  return out;
}

}  // namespace

Json regret_json(const std::vector<RegretShape>& shapes) {
  const Regret r = regret_of(shapes);
  Json flagged = Json::array();
  for (const RegretShape* s : by_regret(shapes)) {
    if (s->regret <= kFlaggedRegret) continue;
    flagged.push_back({{"problem", s->words},
                       {"kernel", s->kernel},
                       {"tile", s->tile},
                       {"chosen_by", s->chosen_by},
                       {"best", s->best},
                       {"best_tile", s->best_tile},
                       {"regret", s->regret},
                       {"regret_low", s->low},
                       {"regret_high", s->high},
                       {"chosen_us", s->chosen_us}});
  }
  return {{"geomean", r.geomean}, {"worst", r.worst}, {"shapes", r.shapes}, {"flagged", flagged}};
}

std::string regret_text(const std::vector<RegretShape>& shapes) {
  const Regret r = regret_of(shapes);
  std::string text;
  for (const RegretShape* s : by_regret(shapes)) {
    if (s->regret == 1) break;
    const auto tiled = [](const std::string& kernel, const std::string& tile) {
      return tile.empty() ? kernel : kernel + " tile=" + tile;
    };
    text += fmt::format("{:>6.2f}{} {} by {}, {} is faster\n       {}\n", s->regret,
                        s->regret > kFlaggedRegret ? " !" : "  ", tiled(s->kernel, s->tile), s->chosen_by,
                        tiled(s->best, s->best_tile), s->words);
  }
  return text + fmt::format(
                    "{} shapes: the choice costs {:.3f} of the best's time in the geometric mean, {:.2f} at "
                    "worst\n",
                    r.shapes, r.geomean, r.worst);
}

}  // namespace ridgeline
