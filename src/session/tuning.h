// What `ridgeline tune` does: the problems of a model, or one; each tried; what is faster is stored.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "session/session.h"
#include "tune/database.h"
#include "tune/tuner.h"

namespace ridgeline {

struct TuningOptions {
  int threads = 0;
  double seconds = 2;         // a problem
  double budget_seconds = 0;  // in all; 0: none
  uint64_t seed = 1;
  std::function<void(const std::string&)> progress;
};

class TuningSession {
 public:
  /// Opens the database, so that one that cannot be written is told before anything is measured.
  explicit TuningSession(TuningOptions options);
  void tune_model(Model model);
  void tune_words(const std::string& op, const std::vector<std::string>& keys);
  void forget();
  /// All results of this machine as a tile table.
  void export_to(const std::string& file) const;
  nlohmann::ordered_json json() const;
  std::string text(bool list) const;

 private:
  struct Item {
    Problem problem;
    int steps = 1;  // of the model that have this problem
    double predicted_ns = 0;
  };
  struct Result {
    std::string words;
    int steps = 1;
    Trial trial;
    bool stored = false, forgotten = false;
  };
  void tune_all(std::vector<Item> items);
  void tune_one(const Item& item, size_t number, size_t count);

  TuningOptions options_;
  TuningDatabase database_;
  Ceilings ceilings_;
  std::vector<Result> results_;
  int64_t skipped_ = 0, only_ = 0, forgotten_ = 0;
};

}  // namespace ridgeline
