// What a choice costs against the best that brute force finds: one shape's, and all together.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tune/tuner.h"

namespace ridgeline {

struct RegretShape {
  std::string words, kernel, tile, chosen_by;  // what the dispatcher takes
  std::string best, best_tile;                 // what is faster; empty: nothing
  double regret = 1;                           // time of the choice over that of the best
  double low = 1, high = 1;                    // 99 % interval of it, where there was a duel
  double chosen_us = 0;
  int candidates = 0;
};

RegretShape regret_shape(const std::string& words, const Trial& trial);

struct Regret {
  double geomean = 1, worst = 1;
  int shapes = 0;
};
Regret regret_of(const std::vector<RegretShape>& shapes);

/// Shapes whose regret is over this are flagged.
inline constexpr double kFlaggedRegret = 1.1;

/// "regret": geomean, worst, shapes, flagged[].
nlohmann::ordered_json regret_json(const std::vector<RegretShape>& shapes);
std::string regret_text(const std::vector<RegretShape>& shapes);

}  // namespace ridgeline
